"""The stack of compose.yaml, started from the file itself: what is uploaded comes out, and nothing is left behind."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.documents import SENTENCE, text_pdf
from tests.stack.compose_file import read_services
from tests.stack.local_stack import LocalStack, missing_programs

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(420)


VARIABLES = {"POSTGRES_PASSWORD": "secret-of-a-test"}


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """Redis, PostgreSQL, the API and two workers."""
    if missing := missing_programs():
        pytest.skip(f"not installed (Debian: apt-get install {' '.join(missing)})")
    services = read_services(ROOT / "compose.yaml", VARIABLES)
    with LocalStack(services, scale={"worker": 2}) as running:
        yield running
        running.down()
        assert running.processes_left() == []


@pytest.fixture
def client(stack: LocalStack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{stack.address('api')}", timeout=60) as opened:
        yield opened


def submit(client: httpx.Client, *paths: Path, **options: str) -> list[str]:
    files = [("files", (path.name, path.read_bytes())) for path in paths]
    answer = client.post("/v1/documents", files=files, data=options)
    answer.raise_for_status()
    return [document["id"] for document in answer.json()["documents"]]


def until(client: httpx.Client, document: str, reached: Callable[[dict[str, Any]], bool], seconds: float = 180) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        status = client.get(f"/v1/documents/{document}").raise_for_status().json()
        if reached(status):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.1)


def finished(status: dict[str, Any]) -> bool:
    return status["state"] in ("done", "partial", "failed", "cancelled")


def test_everything_is_up_scaled_and_ready(stack: LocalStack, client: httpx.Client) -> None:
    assert [len(stack.of(name)) for name in ("redis", "postgres", "api", "worker")] == [1, 1, 1, 2]
    ready = client.get("/readyz").raise_for_status().json()
    assert ready["checks"]["workers"]["detail"] == "2 alive"


def test_uploads_become_results(client: httpx.Client, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"not a PDF at all")
    documents = submit(client, text_pdf(tmp_path / "a.pdf", 6), text_pdf(tmp_path / "b.pdf", 2), broken)
    a, b, bad = (until(client, document, finished) for document in documents)
    assert (a["state"], a["pages_done"]) == ("done", 6)
    assert (b["state"], b["pages_done"]) == ("done", 2)
    assert (bad["state"], bad["error"]["code"]) == ("failed", "not_a_pdf")
    markdown = client.get(f"/v1/documents/{a['id']}/result").raise_for_status().text
    assert markdown.count(SENTENCE) == 6 * 12
    archive = zipfile.ZipFile(io.BytesIO(client.get(f"/v1/documents/{b['id']}/result?format=zip").content))
    assert {"document.md", "manifest.json"} <= set(archive.namelist())
    assert client.get(f"/v1/documents/{a['id']}/pages/3/image").content.startswith(b"\xff\xd8")


def test_work_goes_on_when_a_worker_is_killed_and_redis_comes_back_empty(
    stack: LocalStack, client: httpx.Client, tmp_path: Path
) -> None:
    (document,) = submit(client, text_pdf(tmp_path / "long.pdf", 60), force="true")
    until(client, document, lambda status: status["pages_done"] >= 1)
    (redis,) = stack.of("redis")
    redis.process.kill()
    redis.process.wait()
    stack.replicas.remove(redis)
    for file in stack.volume("redis").rglob("*"):
        if file.is_file():
            file.unlink()
    victim = stack.of("worker")[0]
    for process in [*psutil.Process(victim.process.pid).children(recursive=True), victim.process]:
        process.kill()
    victim.process.wait()
    stack.replicas.remove(victim)
    stack.start("redis")
    stack.wait_healthy("redis")
    stack.start("worker")
    status = until(client, document, finished)
    assert (status["state"], status["pages_done"]) == ("done", 60)


def test_a_stopped_worker_drains_and_leaves_nothing(stack: LocalStack, client: httpx.Client, tmp_path: Path) -> None:
    (document,) = submit(client, text_pdf(tmp_path / "drained.pdf", 24), force="true")
    until(client, document, lambda status: status["pages_done"] >= 1)
    first = stack.of("worker")[0]
    children = psutil.Process(first.process.pid).children(recursive=True)
    assert stack.stop(first), "it had to be killed"
    assert first.process.returncode == 0
    assert [child for child in children if child.is_running()] == []
    status = until(client, document, finished)
    assert (status["state"], status["pages_done"]) == ("done", 24)
    stack.start("worker")


def test_the_api_answers_again_after_a_restart_and_still_knows_everything(
    stack: LocalStack, client: httpx.Client, tmp_path: Path
) -> None:
    (document,) = submit(client, text_pdf(tmp_path / "kept.pdf", 1))
    until(client, document, finished)
    (api,) = stack.of("api")
    assert stack.stop(api), "it had to be killed"
    stack.start("api")
    stack.wait_healthy("api")
    assert client.get(f"/v1/documents/{document}/result").status_code == 200
