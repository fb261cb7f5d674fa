"""Who a worker process is, so that neighbours can tell whether it is still there."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import psutil

from workers.store.fleet import Presence


def this_process(queues: tuple[str, ...], concurrency: int) -> Presence:
    """A new presence of this process."""
    host = socket.gethostname()
    return Presence(
        id=f"{host[:80]}-{os.getpid()}-{secrets.token_hex(4)}",
        host=host[:255],
        place=_place(),
        pid=os.getpid(),
        process_started_at=_started(os.getpid()) or 0.0,
        queues=queues,
        concurrency=concurrency,
    )


def is_gone(neighbour: Presence) -> bool:
    """Whether a process of this same place has ended. Its id may belong to another process by now."""
    return _started(neighbour.pid) != neighbour.process_started_at


def _place() -> str:
    """One boot of one machine and one namespace of process ids; containers have their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"{socket.gethostname()}:{psutil.boot_time():.0f}"


def _started(pid: int) -> float | None:
    """When a process was started; on Linux in ticks since the boot, which no change of the clock moves."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        state, *fields = stat[stat.rindex(")") + 2 :].split()
        return None if state in "ZX" else float(fields[18])
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return None
    except (OSError, ValueError, IndexError):
        return None
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
