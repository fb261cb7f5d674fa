"""A page process may crash, hang or swell: its supervisor says which, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.errors import Cancelled, Encrypted, PageCrashed, PageFailed, PageOutOfMemory, PageTimeout
from pipeline.processes import Limits, PageProcess, Task

TASKS = "tests.pipeline.processes.tasks"


def task(name: str, argument: Any = None, seconds: float = 60, units: int = 1) -> Task:
    return Task(f"{TASKS}:{name}", argument, seconds, units)


@pytest.fixture
def process() -> Iterator[PageProcess]:
    process = PageProcess()
    yield process
    process.kill()


def wait_until_gone(pid: int, seconds: float = 10) -> bool:
    """True once the process has ended (a zombie that its new parent has not collected counts as ended)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_values_come_as_they_are_yielded_and_the_process_is_used_again(process: PageProcess) -> None:
    assert list(process.run(task("count_to", 3))) == [0, 1, 2]
    first = process.pid
    assert list(process.run(task("own_pid"))) == [first]


def test_a_default_timeout_that_a_library_set_for_sockets_does_not_matter(process: PageProcess) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(1.0)
    try:
        assert list(process.run(task("count_to", 3))) == [0, 1, 2]
        first = process.pid
        # A process that could not wait for its next task would have ended.
        with pytest.raises(psutil.TimeoutExpired):
            psutil.Process(first).wait(1)
        assert list(process.run(task("own_pid"))) == [first]
    finally:
        socket.setdefaulttimeout(before)


def test_a_hang_ends_at_the_deadline_and_earlier_values_are_kept(process: PageProcess) -> None:
    seen = []
    with pytest.raises(PageTimeout):
        for value in process.run(task("yield_then_hang", 2, seconds=0.5, units=3)):
            seen.append(value)
    assert seen == [0, 1]
    assert process.pid is None


def test_a_crash_is_reported_with_its_signal_and_the_next_task_gets_a_fresh_process(process: PageProcess) -> None:
    with pytest.raises(PageCrashed, match="SIGSEGV"):
        list(process.run(task("yield_then_segfault", 1)))
    assert list(process.run(task("count_to", 1))) == [0]


def test_a_kill_from_outside_is_a_crash(process: PageProcess) -> None:
    values = process.run(task("yield_then_hang", 1))
    next(values)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PageCrashed, match="SIGKILL"):
        next(values)


def test_memory_over_the_ceiling_ends_the_process() -> None:
    process = PageProcess(Limits(memory_bytes=150 * 2**20))
    with pytest.raises(PageOutOfMemory, match="PAGEMILL_PAGE_MEMORY_MB"):
        list(process.run(task("fill_memory", 300)))
    assert process.pid is None


def test_errors_keep_their_type_and_the_process_lives_on(process: PageProcess) -> None:
    with pytest.raises(Encrypted, match="encrypted"):
        list(process.run(task("raise_typed")))
    pid = process.pid
    with pytest.raises(PageFailed, match="a library's surprise"):
        list(process.run(task("raise_untyped")))
    assert process.pid == pid


def test_cancelling_ends_the_process_within_two_seconds(process: PageProcess) -> None:
    cancelled = threading.Event()
    values = process.run(task("yield_then_hang", 1), cancelled)
    next(values)
    cancelled.set()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        next(values)
    assert time.monotonic() - started < 2
    assert process.pid is None


def test_what_a_page_process_started_ends_with_it(process: PageProcess, tmp_path: Path) -> None:
    values = process.run(task("start_grandchild_then_hang", str(tmp_path / "pid")))
    grandchild = next(values)
    process.kill()
    assert wait_until_gone(grandchild)


def test_a_process_is_replaced_after_its_share_of_pages() -> None:
    process = PageProcess(Limits(recycle_after=2))
    pids = []
    for _ in range(4):
        (pid,) = process.run(task("own_pid"))  # to its end: a task left in the middle costs the process
        pids.append(pid)
    process.kill()
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_no_orphan_is_left_when_the_supervisor_itself_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "grandchild"
    program = (
        "from pipeline.processes import PageProcess, Task\n"
        f"values = PageProcess().run(Task('{TASKS}:start_grandchild_then_hang', {str(pid_file)!r}, 600))\n"
        "next(values); print('started', flush=True); next(values)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    children = [p.pid for p in psutil.Process(parent.pid).children(recursive=True)]
    assert int(pid_file.read_text()) in children
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert all(wait_until_gone(pid) for pid in children)
