"""Leases end once, and blocks are given back once, when nobody reads them any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from engine.interconnect.clock import Clock
from engine.interconnect.errors import LeaseExpired, OutOfBounds
from engine.interconnect.layout import KVLayout
from engine.interconnect.leases import Lease, LeaseTable
from engine.interconnect.regions import Region
from tests.engine.interconnect.harness import soon

LAYOUT = KVLayout.separate(layers=1, blocks=8, block_size=4, heads=1, dims={"k": 4}, dtype="int8")
REGION = Region("kv", bytearray(LAYOUT.span), LAYOUT)


class Owner:
    """Counts how often it is told that blocks are free."""

    def __init__(self) -> None:
        self.freed: list[tuple[int, ...]] = []
        self.event = threading.Event()

    def __call__(self, blocks: tuple[int, ...]) -> None:
        self.freed.append(blocks)
        self.event.set()


@pytest.fixture
def table() -> Iterator[LeaseTable]:
    clock = Clock("test")
    yield LeaseTable("engine", 1, clock)
    clock.close()


def test_an_unused_lease_ends_by_itself(table: LeaseTable) -> None:
    owner = Owner()
    lease = table.reserve(REGION, [1, 2], 0.05, owner)
    assert owner.event.wait(10)
    assert owner.freed == [(1, 2)]
    with pytest.raises(LeaseExpired):
        table.pin(lease.id, soon())


def test_a_renewed_lease_lives_on(table: LeaseTable) -> None:
    owner = Owner()
    lease = table.reserve(REGION, [1], 0.2, owner)
    table.renew(lease.id, 60)
    assert not owner.event.wait(0.4)
    table.pin(lease.id, soon()).drop()
    table.release(lease.id)
    assert owner.freed == [(1,)]


def test_releasing_twice_frees_once(table: LeaseTable) -> None:
    owner = Owner()
    lease = table.reserve(REGION, [1], 60, owner)
    for _ in range(3):
        table.release(lease.id)
    assert owner.freed == [(1,)]


def test_pinned_blocks_are_quarantined_until_the_last_pin_goes(table: LeaseTable) -> None:
    owner = Owner()
    lease = table.reserve(REGION, [1, 2], 60, owner)
    pins = [table.pin(lease.id, soon()) for _ in range(3)]
    table.release(lease.id)
    with pytest.raises(LeaseExpired):
        table.pin(lease.id, soon())
    for pin in pins:
        assert owner.freed == []
        assert table.quarantined_blocks() == 2
        pin.drop()
        pin.drop()
    assert owner.freed == [(1, 2)]
    assert table.held_blocks() == 0


def test_a_pin_ends_with_its_own_deadline(table: LeaseTable) -> None:
    owner = Owner()
    lease = table.reserve(REGION, [1], 60, owner)
    pin = table.pin(lease.id, time.monotonic() + 0.05)
    table.release(lease.id)
    assert owner.event.wait(10)
    pin.drop()
    assert owner.freed == [(1,)]


def test_an_expiry_and_a_release_at_the_same_time_free_once(table: LeaseTable) -> None:
    for _ in range(50):
        owner = Owner()
        lease = table.reserve(REGION, [1], 0.002, owner)
        time.sleep(0.002)
        table.release(lease.id)
        assert owner.event.wait(10)
        assert owner.freed == [(1,)]


def test_an_owner_that_fails_does_not_stop_the_others(table: LeaseTable) -> None:
    def broken(_: tuple[int, ...]) -> None:
        raise RuntimeError("the owner is broken")

    owner = Owner()
    table.reserve(REGION, [1], 0.02, broken)
    table.reserve(REGION, [2], 0.05, owner)
    assert owner.event.wait(10)
    assert table.held_blocks() == 0


def test_blocks_that_do_not_exist_cannot_be_leased(table: LeaseTable) -> None:
    for blocks in ([8], [-1]):
        with pytest.raises(OutOfBounds):
            table.reserve(REGION, blocks, 60)
    for seconds in (0, -1, 1e9, float("nan")):
        with pytest.raises(ValueError, match="lasts"):
            table.reserve(REGION, [1], seconds)
    assert table.held_blocks() == 0


def test_closing_frees_everything(table: LeaseTable) -> None:
    owner = Owner()
    lease = table.reserve(REGION, [1], 60, owner)
    pin = table.pin(lease.id, soon())
    table.close()
    pin.drop()
    assert owner.freed == [(1,)]


def test_checksums_are_those_at_the_start_of_the_lease(table: LeaseTable) -> None:
    lease = table.reserve(REGION, [3], 60)
    table.seal(lease.id)
    pin = table.pin(lease.id, soon())
    runs = np.asarray([3 * 16]), np.asarray([16])
    before = pin.seals.of(*runs)
    REGION.bytes[3 * 16] ^= 1
    assert pin.seals.of(*runs) == before
    other = table.reserve(REGION, [3], 60)
    assert table.pin(other.id, soon()).seals.of(*runs) != before


def test_a_lease_survives_json(table: LeaseTable) -> None:
    lease = table.reserve(REGION, [3, 1], 60)
    assert Lease.from_dict(lease.to_dict()) == lease
