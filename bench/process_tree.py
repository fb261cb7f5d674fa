"""Run a command and watch the whole tree of processes below it: time, memory, and who stays behind."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import psutil

MARK = "PAGEMILL_BENCH_RUN"
"""Environment variable that every descendant inherits. It finds orphans, whose parents are gone."""

SETTLE_SECONDS = 2.0
"""How long descendants may take to end after the command has ended before they count as left behind."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one command did.

    Attributes:
        returncode: None if it was stopped after its time limit.
        seconds: wall time.
        peak_bytes: largest sum of resident set sizes over the process tree. Pages shared between processes
            count once for each, so this overstates; compare it with other runs only.
        left_behind: names of descendants that outlived the command. They have been killed.
        stdout, stderr: captured text.
    """

    returncode: int | None
    seconds: float
    peak_bytes: int
    left_behind: tuple[str, ...]
    stdout: str
    stderr: str


def run(
    command: Sequence[str],
    *,
    timeout: float,
    sample_seconds: float = 0.05,
    environment: Mapping[str, str] | None = None,
    on_sample: Callable[[float], None] | None = None,
) -> Run:
    """Run `command` to its end, or kill it with all its descendants after `timeout` seconds.

    Args:
        command: program and arguments; standard input is empty.
        timeout: seconds of wall time.
        sample_seconds: pause between two looks at memory. A shorter peak can be missed.
        environment: variables to set on top of this process's own.
        on_sample: called with the seconds so far after each look.
    """
    mark = uuid.uuid4().hex
    variables = {**os.environ, **(environment or {}), MARK: mark}
    # Files, not pipes: a full pipe would stop the command while only memory is being watched.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables)
        tree = psutil.Process(child.pid)
        peak, timed_out = 0, False
        while True:
            peak = max(peak, _resident_bytes(tree))
            if on_sample:
                on_sample(time.perf_counter() - started)
            try:
                child.wait(sample_seconds)
                break
            except subprocess.TimeoutExpired:
                if time.perf_counter() - started > timeout:
                    timed_out = True
                    break
        seconds = time.perf_counter() - started
        if timed_out:
            _kill([*_marked(mark), tree])
            child.wait()
        left_behind = () if timed_out else _settle(mark)
        return Run(
            returncode=None if timed_out else child.returncode,
            seconds=seconds,
            peak_bytes=peak,
            left_behind=left_behind,
            stdout=_read(out),
            stderr=_read(err),
        )


def _resident_bytes(root: psutil.Process) -> int:
    total = 0
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def _settle(mark: str) -> tuple[str, ...]:
    """Wait for the descendants to end; kill and name those that do not."""
    alive = _wait(_marked(mark), SETTLE_SECONDS)
    names = []
    for process in alive:
        try:
            names.append(f"{process.name()} ({process.pid})")
        except psutil.NoSuchProcess:
            continue
    _kill(alive)
    return tuple(names)


def _wait(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait up to `seconds` for all to end and answer those that did not.

    Unlike psutil.wait_procs, a zombie counts as ended: nobody may be there to reap an orphan.
    """
    deadline = time.perf_counter() + seconds
    while alive := [process for process in processes if _alive(process)]:
        if time.perf_counter() > deadline:
            break
        time.sleep(0.02)
    return alive


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and _alive(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _wait(processes, SETTLE_SECONDS)


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")
