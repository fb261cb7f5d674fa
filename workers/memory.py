"""How many pages may be in work at the same time, by memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import psutil

_FIRST_GUESS = 512 * 2**20
"""What a page process takes until one has been seen, bytes: the models and a page of A4."""

_LOOK_SECONDS = 0.25
_LEARN_SECONDS = 1.0


class Processes(Protocol):
    """Page processes, as far as their memory goes; `PageProcesses` are some."""

    @property
    def size(self) -> int: ...

    def memory_bytes(self) -> int: ...


class Together:
    """Several pools as one."""

    def __init__(self, pools: Collection[Processes]) -> None:
        self._pools = tuple(pools)

    @property
    def size(self) -> int:
        return sum(pool.size for pool in self._pools)

    def memory_bytes(self) -> int:
        return sum(pool.memory_bytes() for pool in self._pools)


class MemoryGate:
    """Lets a page start if there is memory for it, or if no other page is in work.

    A page is taken to need as much as the largest page process seen so far had.

    Args:
        processes: that the pages run in, of one pool or several.
        budget_bytes: what they may fill together; 0 for what the machine or container has free.
        ceiling_bytes: most that one process may have.
    """

    def __init__(
        self,
        processes: Processes,
        budget_bytes: int,
        ceiling_bytes: int,
        available: Callable[[], int] | None = None,
    ) -> None:
        self._processes, self._budget, self._ceiling = processes, budget_bytes, ceiling_bytes
        self._available = available or available_bytes
        self._need = min(_FIRST_GUESS, ceiling_bytes)
        self._changed = threading.Condition()
        self._in_work = 0
        self._learn_next = 0.0

    def enter(self, stopping: threading.Event) -> bool:
        """Wait for memory; False if `stopping` was set meanwhile. Each True is followed by one `leave`."""
        with self._changed:
            while not stopping.is_set():
                if self._in_work == 0 or self._free() >= self._need:
                    self._in_work += 1
                    return True
                self._changed.wait(_LOOK_SECONDS)
        return False

    def leave(self) -> None:
        with self._changed:
            self._in_work -= 1
            self._changed.notify()

    def learn(self) -> None:
        """Look at what the processes have now; to be called while pages are in work, as often as one likes."""
        now = time.monotonic()
        if now < self._learn_next:
            return
        self._learn_next = now + _LEARN_SECONDS
        used = self._processes.memory_bytes()
        with self._changed:
            share = used // self._processes.size if self._processes.size else 0
            self._need = min(self._ceiling, max(self._need, share))

    def _free(self) -> int:
        used = self._processes.memory_bytes()
        # A process that waits for its next page gives its own memory to it.
        idle = used * max(0, self._processes.size - self._in_work) // self._processes.size
        if self._budget:
            return self._budget - used + idle
        return self._available() + idle


def available_bytes() -> int:
    """Memory that can be taken without swapping, by the machine's account and the container's."""
    machine = int(psutil.virtual_memory().available)
    container = _container_free()
    return machine if container is None else min(machine, container)


def _container_free(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the limit of a container (cgroup 2) leaves, its file cache not counted; None where there is no limit."""
    try:
        limit = (group / "memory.max").read_text("ascii").strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text("ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
        return int(limit) - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return None
