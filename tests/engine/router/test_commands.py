"""The commands, as they are typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.engine.router.nursery import ROOT

PROGRAM = [sys.executable, "-m", "api.cli.main"]


def test_the_router_says_where_it_listens_and_ends_when_asked() -> None:
    process = subprocess.Popen([*PROGRAM, "router", "--port", "0"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        line = process.stderr.readline()
        url = next(word.rstrip(".") for word in line.split() if word.startswith("http://127.0.0.1:"))
        assert httpx.get(f"{url}/v1/models").json() == {"object": "list", "data": []}
        assert httpx.get(f"{url}/health").status_code == 503
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*PROGRAM, "router", "--port", port], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "Cannot listen" in done.stderr


def test_the_demo_shows_equal_tokens_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("lmdeploy")
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([*PROGRAM, "engine", "demo", "--json"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and found["failures"] == []
    assert len(found["rows"]) == 4 and all(row["equal"] for row in found["rows"])
    assert found["kv_bytes"] > 0 and found["blocks_left"] == found["fallbacks"] == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("pagemill")] == []
