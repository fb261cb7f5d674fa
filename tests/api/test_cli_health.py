"""`pagemill health`: an exit code for what watches a part, and the engine's secret only for the engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from api.cli.main import app
from tests.workers.servers import free_port


class Asked(BaseHTTPRequestHandler):
    """Answers every path with 200 but `/health`, as an instance that is ill does; remembers who asked how."""

    seen: dict[str, str | None]

    def do_GET(self) -> None:
        self.seen[self.path] = self.headers.get("Authorization")
        self.send_response(503 if self.path == "/health" else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, str | None]]]:
    monkeypatch.setenv("PAGEMILL_ENGINE_TOKEN", "a secret of the tests")
    seen: dict[str, str | None] = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Asked,), {"seen": seen})) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}", seen
        listening.shutdown()
        thread.join()


def health(*arguments: str) -> int:
    return CliRunner().invoke(app, ["health", *arguments]).exit_code


def test_parts_that_answer_are_well_and_an_ill_instance_is_not(server: tuple[str, dict[str, str | None]]) -> None:
    url, _ = server
    assert [health(part, "--url", url) for part in ("api", "router", "instance")] == [0, 0, 1]
    assert health("api", "--url", f"http://127.0.0.1:{free_port()}") == 1


def test_the_engines_secret_is_shown_to_its_parts_alone(server: tuple[str, dict[str, str | None]]) -> None:
    url, seen = server
    for part in ("api", "router", "instance"):
        health(part, "--url", url)
    secret = "Bearer a secret of the tests"
    assert seen == {"/healthz": None, "/metrics": secret, "/health": secret}


@pytest.mark.parametrize(("part", "port"), [("api", 8800), ("router", 8810), ("instance", 8820)])
def test_each_part_is_looked_for_at_its_own_port(part: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("api.cli.health._answers", lambda _, address: asked.append(address))
    assert health(part) == 0
    assert asked == [f"http://127.0.0.1:{port}"]
