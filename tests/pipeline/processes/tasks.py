"""Functions for page processes to run in the tests: well-behaved ones and the faults to survive."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import Encrypted


def count_to(number: int) -> Iterator[int]:
    yield from range(number)


def own_pid(_: object) -> Iterator[int]:
    yield os.getpid()


def yield_then_hang(number: int) -> Iterator[int]:
    yield from range(number)
    time.sleep(600)


def yield_then_segfault(number: int) -> Iterator[int]:
    yield from range(number)
    ctypes.string_at(0)


def fill_memory(megabytes: int) -> Iterator[int]:
    hoard = []
    for _ in range(megabytes):
        hoard.append(os.urandom(2**20))
    yield len(hoard)
    time.sleep(600)


def raise_typed(_: object) -> Iterator[int]:
    yield 1
    raise Encrypted("The PDF is encrypted.")


def raise_untyped(_: object) -> Iterator[int]:
    yield 1
    raise ValueError("a library's surprise")


def start_grandchild_then_hang(pid_file: str) -> Iterator[int]:
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(pid_file).write_text(str(grandchild.pid))
    yield grandchild.pid
    time.sleep(600)
