"""What was opened is closed: descriptors, mappings, threads, sockets."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.interconnect.arena import SharedArena
from engine.interconnect.plan import BlockPairs
from tests.engine.interconnect.harness import LAYOUT, Engine, soon


def resources() -> dict[str, int]:
    """What this process holds now."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text("utf-8")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "arenas mapped": maps.count("pagemill-kv"),
        "threads": threading.active_count(),
        "shared memory files": len(os.listdir("/dev/shm")),
    }


def settled(before: dict[str, int]) -> dict[str, int]:
    """What is held once threads that are ending have ended."""
    deadline = threading.Event()
    for _ in range(100):
        now = resources()
        if all(now[name] <= before[name] for name in before):
            return now
        deadline.wait(0.05)
    return resources()


def test_a_thousand_connections_leave_nothing_behind(kind: str, engines: Callable[..., Engine]) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    metadata = source.metadata
    lease = source.transport.reserve([1], 600)
    before = resources()
    for number in range(1000):
        connection = reader.transport.connect(metadata, soon())
        if number % 10 == 0:
            connection.submit(lease, BlockPairs.of([1], [2]), [0], soon()).result()
        connection.close()
    after = settled(before)
    assert {name: after[name] - before[name] for name in before if after[name] > before[name]} == {}


def test_refused_connections_leave_nothing_behind(socket_kind: str, engines: Callable[..., Engine]) -> None:
    source, reader = engines(socket_kind, "source"), engines(socket_kind, "stranger", secret=b"not the right one")
    metadata = source.metadata
    before = resources()
    for _ in range(100):
        try:
            reader.transport.connect(metadata, soon())
        except Exception as error:  # noqa: BLE001
            assert type(error).__name__ == "AuthenticationFailed"
    after = settled(before)
    assert {name: after[name] - before[name] for name in before if after[name] > before[name]} == {}


def test_closed_engines_leave_nothing_behind(kind: str) -> None:
    def once(number: int) -> None:
        source, reader = Engine(kind, f"source {number}"), Engine(kind, f"reader {number}")
        connection = reader.transport.connect(source.metadata, soon())
        lease = source.transport.reserve([1], 60)
        connection.submit(lease, BlockPairs.of([1], [2]), range(LAYOUT.layers), soon()).result()
        for engine in (source, reader):
            engine.close()

    once(0)
    before = resources()
    for number in range(20):
        once(number + 1)
    after = settled(before)
    assert {name: after[name] - before[name] for name in before if after[name] > before[name]} == {}


def test_a_default_time_out_of_sockets_lets_nothing_be_held(socket_kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def once() -> None:
        source, reader = Engine(socket_kind, "source"), Engine(socket_kind, "reader")
        connection = reader.transport.connect(source.metadata, soon())
        lease = source.transport.reserve([1], 60)
        time.sleep(0.3)  # longer than the time-out: who listens must not notice
        connection.submit(lease, BlockPairs.of([1], [2]), range(LAYOUT.layers), soon()).result()
        for engine in (source, reader):
            engine.close()

    default = socket.getdefaulttimeout()
    before = resources()
    socket.setdefaulttimeout(0.1)
    try:
        once()
    finally:
        socket.setdefaulttimeout(default)
    after = settled(before)
    assert {name: after[name] - before[name] for name in before if after[name] > before[name]} == {}
    assert caplog.records == []


def test_an_arena_goes_with_its_last_user() -> None:
    before = resources()
    for _ in range(50):
        SharedArena(1 << 16).close()
        SharedArena(1 << 16)
    assert settled(before)["descriptors"] <= before["descriptors"]
    assert settled(before)["arenas mapped"] <= before["arenas mapped"]
