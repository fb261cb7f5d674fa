"""Leases on blocks that wait to be pulled, and the quarantine of those that are still being read.

A lease moves one way only: live -> ended (released or expired) -> freed. It is freed, and its owner told, exactly
once, when it has ended and no reader holds a pin. A pin has a deadline of its own, so a reader that died or
sleeps cannot keep blocks for ever; its bytes no longer match the checksum then, so it cannot take wrong ones for right.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.interconnect.clock import Clock, Timer
from engine.interconnect.errors import LeaseExpired
from engine.interconnect.regions import Mask, Region
from engine.interconnect.seals import Seals

log = logging.getLogger(__name__)

OnFree = Callable[[tuple[int, ...]], None]
FOREVER = float("inf")
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to read some blocks of one incarnation of an engine, for a time. Travels with the request.

    Attributes:
        id: 32 hexadecimal digits that cannot be guessed.
        engine_id, epoch: who granted it.
        region: name of the region that the blocks are in.
        blocks: in the order of the sequence.
        seconds: how long it was granted for.
    """

    id: str
    engine_id: str
    epoch: int
    region: str
    blocks: tuple[int, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "id": self.id,
            "engine_id": self.engine_id,
            "epoch": self.epoch,
            "region": self.region,
            "blocks": list(self.blocks),
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Lease:
        """What `to_dict` gave. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            str(content["id"]),
            str(content["engine_id"]),
            int(content["epoch"]),
            str(content["region"]),
            tuple(int(block) for block in content["blocks"]),
            float(content["seconds"]),
        )


class LeaseTable:
    """All leases that one engine has granted. Safe to use from any thread."""

    def __init__(self, engine_id: str, epoch: int, clock: Clock) -> None:
        self._engine_id = engine_id
        self._epoch = epoch
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def reserve(self, region: Region, blocks: Sequence[int], seconds: float, on_free: OnFree | None = None) -> Lease:
        """Let peers read blocks until the lease ends.

        Args:
            blocks: their contents must not change before `on_free` is called.
            seconds: until it ends by itself, at most an hour, unless renewed.
            on_free: called once with the blocks, from any thread, when no reader is left.

        Raises:
            OutOfBounds: a block that does not exist.
            ValueError: seconds out of range.
        """
        _check_seconds(seconds)
        lease = Lease(secrets.token_hex(16), self._engine_id, self._epoch, region.name, tuple(blocks), seconds)
        self._add(lease, region, time.monotonic() + seconds, on_free)
        return lease

    def reserve_for_ever(self, region: Region) -> Lease:
        """A lease on a whole region that ends only with the engine."""
        blocks = tuple(range(region.layout.blocks))
        lease = Lease(secrets.token_hex(16), self._engine_id, self._epoch, region.name, blocks, 0.0)
        self._add(lease, region, FOREVER, None)
        return lease

    def renew(self, lease_id: str, seconds: float) -> None:
        """Let a lease end so many seconds from now. Raises LeaseExpired if it has ended already."""
        _check_seconds(seconds)
        with self._lock:
            entry = self._live(lease_id)
            if entry.until != FOREVER:
                entry.until = time.monotonic() + seconds
                self._watch(entry)

    def release(self, lease_id: str) -> None:
        """End a lease now. One that has ended already, or never was, is no error: releasing twice is harmless."""
        with self._lock:
            entry = self._entries.get(lease_id)
            if entry is None or entry.until == FOREVER:
                return
            freed = self._end(entry)
        self._tell(freed)

    def pin(self, lease_id: str, until: float) -> Pin:
        """Keep the blocks of a live lease from being freed, at most until an instant of `time.monotonic()`.

        Raises:
            LeaseExpired: it has ended.
        """
        with self._lock:
            entry = self._live(lease_id)
            entry.pins += 1
        pin = Pin(self, entry)
        pin.timer = self._clock.at(until, pin.drop)
        return pin

    def seal(self, lease_id: str) -> None:
        """Take the checksums of a lease's blocks now. Harmless if it has ended."""
        with self._lock:
            entry = self._entries.get(lease_id)
        if entry:
            entry.seals.fill()

    def held_blocks(self) -> int:
        """Blocks of all leases that are not freed yet, live or quarantined."""
        with self._lock:
            return sum(len(entry.lease.blocks) for entry in self._entries.values() if entry.until != FOREVER)

    def quarantined_blocks(self) -> int:
        """Blocks of leases that have ended while somebody still reads them."""
        with self._lock:
            return sum(len(entry.lease.blocks) for entry in self._entries.values() if entry.ended)

    def close(self) -> None:
        """End every lease, whoever reads."""
        with self._lock:
            entries = list(self._entries.values())
            self._entries.clear()
        for entry in entries:
            entry.seals.stop()
            self._tell(entry)

    def unpin(self, entry: _Entry) -> None:
        """For `Pin` only."""
        with self._lock:
            entry.pins -= 1
            freed = self._free_if_idle(entry) if entry.ended else None
        self._tell(freed)

    def _add(self, lease: Lease, region: Region, until: float, on_free: OnFree | None) -> None:
        blocks = np.asarray(lease.blocks, np.int64)
        region.layout.check(np.zeros(0, np.int64), blocks)
        readable = np.zeros(region.layout.blocks, bool)
        readable[blocks] = True
        with self._lock:
            entry = _Entry(lease, region, readable, Seals(region, lease.blocks, lease.id), until, on_free)
            self._entries[lease.id] = entry
            self._watch(entry)

    def _live(self, lease_id: str) -> _Entry:
        entry = self._entries.get(lease_id)
        if entry is None or entry.ended or entry.until <= time.monotonic():
            raise LeaseExpired("the lease has ended, or this engine never granted it")
        return entry

    def _watch(self, entry: _Entry) -> None:
        if entry.timer:
            entry.timer.cancel()
        if entry.until != FOREVER:
            entry.timer = self._clock.at(entry.until, lambda: self._expire(entry))

    def _expire(self, entry: _Entry) -> None:
        with self._lock:
            # Renewed in the meantime: the timer of the renewal will come.
            freed = self._end(entry) if entry.until <= time.monotonic() else None
        self._tell(freed)

    def _end(self, entry: _Entry) -> _Entry | None:
        entry.ended = True
        if entry.timer:
            entry.timer.cancel()
        return self._free_if_idle(entry)

    def _free_if_idle(self, entry: _Entry) -> _Entry | None:
        if entry.pins or self._entries.pop(entry.lease.id, None) is None:
            return None
        entry.seals.stop()
        return entry

    def _tell(self, freed: _Entry | None) -> None:
        """Outside the lock: the owner may call back into this table."""
        if freed is None or freed.on_free is None:
            return
        try:
            freed.on_free(freed.lease.blocks)
        except Exception:
            log.exception("on_free of a lease failed")


@dataclass(slots=True, eq=False)
class _Entry:
    lease: Lease
    region: Region
    readable: Mask
    seals: Seals
    until: float
    on_free: OnFree | None
    ended: bool = False
    pins: int = 0
    timer: Timer | None = None


@dataclass(slots=True, eq=False)
class Pin:
    """A reader at work. `drop` may be called from any thread, any number of times."""

    _table: LeaseTable
    _entry: _Entry
    timer: Timer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _dropped: bool = False

    @property
    def region(self) -> Region:
        return self._entry.region

    @property
    def seals(self) -> Seals:
        return self._entry.seals

    @property
    def readable(self) -> Mask:
        return self._entry.readable

    def drop(self) -> None:
        with self._lock:
            if self._dropped:
                return
            self._dropped = True
        if self.timer:
            self.timer.cancel()
        self._table.unpin(self._entry)


def _check_seconds(seconds: float) -> None:
    if not 0 < seconds <= LONGEST_SECONDS:
        raise ValueError(f"a lease lasts up to {LONGEST_SECONDS:.0f} seconds, not {seconds}")
