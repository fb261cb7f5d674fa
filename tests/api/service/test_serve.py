"""`pagemill serve` and `pagemill keys`: how the service starts, refuses to, and stops."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.test_floors import HEAVY, modules_after

ROOT = Path(__file__).parents[3]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "api.cli.main", *arguments]


def run(*arguments: str, data: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PAGEMILL_DATA_DIR": str(data)}
    return subprocess.run(command(*arguments), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process tree of its own, and its address."""
    environment = {**os.environ, "PAGEMILL_DATA_DIR": str(tmp_path / "data")}
    child = subprocess.Popen(
        command("serve", "--port", "0", "--workers", "1"), cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stderr is not None
        line = next(line for line in child.stderr if "listens" in line)
        match = re.search(r"http://\S+", line)
        assert match is not None
        yield child, match[0]
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_service_stops_cleanly_with_a_reader_of_events_connected(
    embedded: tuple[subprocess.Popen[str], str], number: signal.Signals, tmp_path: Path
) -> None:
    child, url = embedded
    files = {"files": ("a.pdf", b"%PDF-1.4 it never gets far")}
    with httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        document = client.post("/v1/documents", files=files, data={"pages": "1"}).json()["documents"][0]["id"]
        with client.stream("GET", f"/v1/documents/{document}/events") as stream:
            next(stream.iter_lines())
            tree = psutil.Process(child.pid).children(recursive=True)
            child.send_signal(number)
            assert child.wait(60) == 0
    _, alive = psutil.wait_procs(tree, 10)
    assert alive == []
    assert [path for path in (tmp_path / "data" / "artifacts").rglob("*.part")] == []


def test_a_port_in_use_is_said_plainly(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port), data=tmp_path / "data")
    assert done.returncode == 2
    assert f"Port {port} is in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_an_address_that_others_reach_is_refused_without_keys(tmp_path: Path) -> None:
    done = run("serve", "--host", "0.0.0.0", "--port", "0", data=tmp_path / "data")
    assert done.returncode == 2
    assert "--no-auth" in done.stderr and "Traceback" not in done.stderr


def test_a_new_key_is_printed_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    made = [run("keys", "new", "laptop", "--tenant", "ann", "--file", str(keys), data=tmp_path) for _ in range(2)]
    assert [done.returncode for done in made] == [0, 0]
    entries = tomllib.loads(keys.read_text())["keys"]
    assert [entry["tenant"] for entry in entries] == ["ann", "ann"]
    assert keys.stat().st_mode & 0o077 == 0
    for done, entry in zip(made, entries, strict=True):
        assert done.stdout.strip() not in keys.read_text()
        assert len(entry["sha256"]) == 64


def test_the_api_process_loads_no_parser_and_no_model() -> None:
    assert modules_after("import api.service.app") & HEAVY == set()
