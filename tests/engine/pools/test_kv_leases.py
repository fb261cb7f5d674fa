"""Leased KV is given back exactly once: by its reader, by release, or when its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from engine.interconnect.arena import SharedArena
from engine.interconnect.layout import KVLayout
from engine.interconnect.plan import BlockPairs
from engine.interconnect.transfer import State
from engine.interconnect.transport import Transport
from engine.interconnect.transports.shared_memory import SharedMemory
from engine.interconnect.transports.tcp import Tcp
from engine.pools.kv_leases import KVLeases, lease_for

SECRET = b"sixteen bytes or more"
LAYOUT = KVLayout.interleaved(layers=2, blocks=16, block_size=4, heads=2, dims={"k": 8, "v": 8}, dtype="float32")


def transports(name: str) -> dict[str, Transport]:
    arena = SharedArena(LAYOUT.span)
    np.frombuffer(arena.buffer, np.uint8)[:] = 7
    made: dict[str, Transport] = {
        "shared_memory": SharedMemory(name, secret=SECRET),
        "tcp": Tcp(name, secret=SECRET),
    }
    for transport in made.values():
        transport.register(arena.buffer[: LAYOUT.span], LAYOUT)
    return made


@pytest.fixture
def source() -> Iterator[dict[str, Transport]]:
    made = transports("source")
    yield made
    for transport in made.values():
        transport.close()


@pytest.mark.parametrize("way", ["shared_memory", "tcp"])
def test_a_reader_frees_what_it_has_read_on_every_transport(source: dict[str, Transport], way: str) -> None:
    freed = threading.Semaphore(0)
    leases = KVLeases(source)
    text = leases.grant("a", (3, 4), 60, freed.release)
    reader = transports("reader")
    connection = reader[way].connect(source[way].export_metadata(), time.monotonic() + 20)
    lease = lease_for(text, way)
    pull = connection.submit(lease, BlockPairs.of((3, 4), (1, 2)), range(2), time.monotonic() + 20)
    assert pull.wait(30) is State.DONE
    assert leases.count() == 1
    connection.release(lease, time.monotonic() + 20)
    assert freed.acquire(timeout=20)
    assert leases.count() == 0
    assert not leases.release("a")
    assert not freed.acquire(blocking=False)
    for transport in reader.values():
        transport.close()


def test_what_nobody_reads_ends_by_itself_once(source: dict[str, Transport]) -> None:
    freed = threading.Semaphore(0)
    leases = KVLeases(source)
    leases.grant("a", (3, 4), 0.1, freed.release)
    assert freed.acquire(timeout=20)
    assert (leases.count(), leases.granted, leases.freed) == (0, 1, 1)
    assert not freed.acquire(timeout=0.2)


def test_releasing_twice_is_harmless(source: dict[str, Transport]) -> None:
    freed = threading.Semaphore(0)
    leases = KVLeases(source)
    leases.grant("a", (3,), 60, freed.release)
    assert leases.release("a")
    assert not leases.release("a")
    assert freed.acquire(timeout=5)
    assert not freed.acquire(blocking=False)
