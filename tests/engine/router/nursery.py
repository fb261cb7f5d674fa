"""Starts the processes of tests in milliseconds: everything is imported once, then forked.

The program reads what to start as lines of JSON and answers with pid and address. When its standard input ends, it
ends what it has started, and itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


class Child:
    """A process that listens at `url`."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid, self.url = pid, url

    def is_running(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Nursery:
    """The other end of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.router.nursery"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def start(self, kind: str, given: Any) -> Child:
        """`kind`: "router" with settings, "instance" with a command line."""
        assert self._program.stdin and self._program.stdout
        with self._lock:
            self._program.stdin.write(json.dumps({"kind": kind, "given": given}) + "\n")
            self._program.stdin.flush()
            answer = json.loads(self._program.stdout.readline())
        assert answer["url"], f"{kind} {given} did not start"
        return Child(answer["pid"], answer["url"])

    def close(self) -> None:
        assert self._program.stdin
        self._program.stdin.close()
        self._program.wait(10)


@functools.cache
def nursery() -> Nursery:
    """The one of this test run."""
    return Nursery()


def main() -> None:
    import engine.router.server as server
    import tests.engine.router.scripted_instance as scripted
    from engine.router.settings import RouterSettings

    def child(order: dict[str, Any], out: int) -> None:
        def ready(url: str) -> None:
            os.write(out, url.encode() + b"\n")
            os.close(out)

        if order["kind"] == "router":
            settings = RouterSettings(**order["given"])
            listening = server.listen("127.0.0.1", 0)
            ready(server.url_of(listening))
            server.serve(settings, listening)
        else:
            scripted.run(order["given"], ready)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    started: list[int] = []
    for line in sys.stdin:
        back, out = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(back)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                child(json.loads(line), out)
            finally:
                os._exit(0)
        os.close(out)
        started.append(pid)
        with os.fdopen(back) as told:
            url = told.readline().strip()
        print(json.dumps({"pid": pid, "url": url}), flush=True)
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
