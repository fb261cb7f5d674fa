"""Every example of docs/api.md is run, in its order, against a service with real workers."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.documents import text_pdf
from tests.workers.servers import wait_for

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "api.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:8800"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`pagemill serve`, as the document says."""
    folder = tmp_path_factory.mktemp("serve")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAGEMILL_")}
    environment |= {"PAGEMILL_DATA_DIR": str(folder / "data"), "PYTHONPATH": str(ROOT)}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "api.cli.main", "serve", "--port", str(port), "--workers", "1"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            return httpx.get(f"{address}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(answers, "the service is ready", 120)
        yield address
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("examples")
    text_pdf(path / "report.pdf", 4)
    return path


def examples() -> list[tuple[str, str]]:
    return re.findall(r"^```(bash|python)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_there_are_examples_for_both_and_each_names_the_address_of_the_service() -> None:
    kinds = [kind for kind, _ in examples()]
    assert kinds.count("bash") >= 5
    assert kinds.count("python") >= 4
    assert all(ADDRESS in program for _, program in examples())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(len(examples())))
def test_the_example_runs(number: int, url: str, folder: Path) -> None:
    kind, program = examples()[number]
    program = program.replace(ADDRESS, url)
    command = ["bash", "-euo", "pipefail", "-c"] if kind == "bash" else [sys.executable, "-c"]
    environment = {**os.environ, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run([*command, program], cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{program}\n{done.stdout}\n{done.stderr}"


def test_every_path_that_is_named_exists() -> None:
    from api.service.routers import batches, documents, events, file_parse, pages, results, service

    paths = {
        re.sub(r"\{[^}]+\}", "{}", route.path)  # type: ignore[attr-defined]
        for part in (batches, documents, events, file_parse, pages, results, service)
        for route in part.router.routes
    }
    named = {
        re.sub(r"\{[^}]+\}", "{}", path) for path in re.findall(r"`(?:[A-Z]+ )?(/(?:v1|file_parse)[^`?\s]*)", TEXT)
    }
    assert named
    assert named <= paths


def test_every_option_and_format_is_named_and_no_other() -> None:
    from api.service.options import FIELDS
    from api.service.schemas import ResultFormat

    def rows(heading: str) -> set[str]:
        section = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
        return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))

    assert rows("Submitting") == set(FIELDS)
    assert rows("Results") == set(ResultFormat)
