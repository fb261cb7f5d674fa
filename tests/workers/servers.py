"""Real servers for tests, each on a free loopback port: PostgreSQL and Redis from the system's packages."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """The path of a program; the test is skipped, with the reason, where it is not installed."""
    candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = shutil.which(name) or (str(candidates[0]) if candidates else None)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install redis-server postgresql)")
    return found


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Poll until the condition holds; fail the test, saying what for, where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


class Redis:
    """A redis-server that can be killed, and started again with nothing in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binary = program("redis-server")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen([self._binary, *options], stdout=subprocess.DEVNULL)
        wait_for(lambda: _accepts(self.port), "redis-server answers")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        """Stopped like a machine that hangs: connections stay open and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


class Postgres:
    """A PostgreSQL server with one database, which can be restarted."""

    def __init__(self) -> None:
        self._initdb, self._server = program("initdb"), program("postgres")
        self._user = _unprivileged()
        # Not in pytest's folder, which only this account may enter.
        folder = Path(tempfile.mkdtemp(prefix="pagemill-postgres-"))
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._folder, self._data = folder, folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        options = ["-D", str(self._data), "-U", "pagemill", "--auth=trust", "--no-sync", "-E", "UTF8"]
        subprocess.run([self._initdb, *options], check=True, user=self._user, stdout=subprocess.DEVNULL, cwd=folder)

    @property
    def url(self) -> str:
        return f"postgresql://pagemill@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = ["-p", str(self.port), "-h", "127.0.0.1", "-k", str(self._data), "-F"]
        self._process = subprocess.Popen(
            [self._server, "-D", str(self._data), *options],
            user=self._user,
            cwd=self._data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: _accepts(self.port) and self._answers(), "PostgreSQL answers")

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, connections are cut."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def fresh_database(self, name: str) -> str:
        """The URL of a new, empty database."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
        return self.url.replace("/postgres", f"/{name}")


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _unprivileged() -> str | None:
    """PostgreSQL refuses to run as root; another account to run it as, or None for this one."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            pwd.getpwnam(name)
            return name
    pytest.skip("PostgreSQL does not run as root, and there is no other account")
