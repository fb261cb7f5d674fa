"""One supervised child process: a deadline, a memory ceiling, recycling, no orphan."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import psutil

from pipeline.errors import Cancelled, PageCrashed, PageOutOfMemory, PageTimeout
from pipeline.processes.messages import Failed, Finished, Started, Yielded

_PACKAGE_ROOT = str(Path(__file__).parents[2])
_POLL_SECONDS = 0.1
_START_SECONDS = 60.0
"""How long Python may take to come up and accept a task; not charged to the task."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one child process may use.

    Attributes:
        memory_bytes: resident memory of the child and everything it started, bytes.
        recycle_after: tasks' worth of units (pages) after which a fresh process takes over.
        threads: for numerical libraries inside the child.
    """

    memory_bytes: int = 3 * 1024**3
    recycle_after: int = 200
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """A function to run in a page process.

    Attributes:
        function: `module:name` of a function of one argument that returns an iterable.
        argument: picklable.
        seconds: deadline for each of `units`. The clock starts when the child takes the task, and starts
            anew, for the units still missing, at each value that the function yields.
        units: how many values the function is expected to yield (pages).
    """

    function: str
    argument: Any
    seconds: float
    units: int = 1


class PageProcess:
    """A child process that runs one task at a time; started at the first task, replaced when lost.

    Not thread-safe: one owner.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline: int | None = None
        self._log: IO[bytes] | None = None
        self._units_done = 0

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Generator[Any, None, None]:
        """Run a task and yield what its function yields, as it comes.

        Raises:
            PageTimeout: the deadline passed; the child was killed.
            PageOutOfMemory: the child went over its ceiling and was killed.
            PageCrashed: the child died by itself.
            Cancelled: `cancelled` was set; the child was killed.
            PipelineError: what the function raised; the child lives on.
        """
        connection = self._start_if_needed()
        try:
            connection.send((task.function, task.argument))
            yield from self._follow(connection, task, cancelled or threading.Event())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise PageCrashed(self._obituary()) from None
        except GeneratorExit:
            self.kill()  # the reader walked away in the middle; the child's state is unknown
            raise
        self._units_done += task.units
        if self._units_done >= self.limits.recycle_after:
            self.kill()

    def _follow(self, connection: Connection, task: Task, cancelled: threading.Event) -> Iterator[Any]:
        missing = task.units
        deadline = time.monotonic() + _START_SECONDS
        while True:
            while not connection.poll(_POLL_SECONDS):
                self._check(deadline, cancelled)
            message = connection.recv()
            if isinstance(message, Yielded):
                missing = max(1, missing - 1)
                yield message.value
            elif isinstance(message, Finished):
                return
            elif isinstance(message, Failed):
                raise message.error
            assert isinstance(message, Started | Yielded)
            deadline = time.monotonic() + missing * task.seconds

    def _check(self, deadline: float, cancelled: threading.Event) -> None:
        """Kill the child and raise if it may not go on."""
        if cancelled.is_set():
            self.kill()
            raise Cancelled("Cancelled before it finished.")
        if time.monotonic() > deadline:
            self.kill()
            raise PageTimeout(
                "The page took longer than its deadline. Allow more with PAGEMILL_PAGE_SECONDS, "
                "or leave the page out with --pages."
            )
        if self.memory_bytes() > self.limits.memory_bytes:
            self.kill()
            ceiling = self.limits.memory_bytes / 1024**3
            raise PageOutOfMemory(
                f"The page needed more than the {ceiling:.1f} GiB that a page process may use. "
                "Allow more with PAGEMILL_PAGE_MEMORY_MB."
            )

    def memory_bytes(self) -> int:
        """Resident memory of the child and its descendants, bytes; 0 where there is none."""
        child = self._child  # another thread may ask
        if child is None:
            return 0
        return sum(_resident_bytes(pid) for pid in [child.pid, *_descendants(child.pid)])

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def kill(self) -> None:
        """End the child and everything it started. Does nothing where there is no child."""
        if self._child is None:
            return
        # The child leads a session of its own, so its group holds all its descendants.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._forget()

    def _start_if_needed(self) -> Connection:
        if self._child is not None and self._child.poll() is not None:
            self.kill()  # died between two tasks: its group may still hold descendants
        if self._connection is None:
            self._start()
        assert self._connection is not None
        return self._connection

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # A library that sets a default timeout for sockets (kombu does while it connects, in every thread) would
        # make both ends non-blocking, and a Connection cannot read from such an end.
        ours.setblocking(True)
        theirs.setblocking(True)
        lifeline_read, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _forget
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "pipeline.processes.child", str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=self._environment(),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(lifeline_read)
        self._connection = Connection(ours.detach())
        self._connection.send([path or str(Path.cwd()) for path in sys.path])
        self._units_done = 0

    def _environment(self) -> dict[str, str]:
        threads = str(self.limits.threads)
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGE_ROOT, os.environ.get("PYTHONPATH")])),
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "LOGURU_LEVEL": os.environ.get("LOGURU_LEVEL", "ERROR"),
            "MINERU_LOG_LEVEL": os.environ.get("MINERU_LOG_LEVEL", "ERROR"),
            # No model hub is ever asked: what is not in an installed wheel is reported as missing.
            "HF_HUB_OFFLINE": "1",
        }

    def _obituary(self) -> str:
        """Say how the child died, with the last line that it wrote."""
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=5)
        status = self._child.poll()
        how = f"signal {signal.Signals(-status).name}" if status is not None and status < 0 else f"status {status}"
        last_words = self._last_line()
        self.kill()
        return f"The page process died ({how})." + (f" It said: {last_words}" if last_words else "")

    def _last_line(self) -> str:
        if self._log is None:
            return ""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - 2000))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
        if self._log is not None:
            self._log.close()
        self._child = self._connection = self._lifeline = self._log = None


def _resident_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0  # it died between two looks; the connection will say so


def _descendants(pid: int) -> list[int]:
    """Asked several times a second for each page process, so without looking at every process of the machine."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text("ascii").split()]
    except FileNotFoundError:  # it died, or this kernel has no such file
        try:
            return [process.pid for process in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []
    except OSError:
        return []
    return [found for child in children for found in [child, *_descendants(child)]]
