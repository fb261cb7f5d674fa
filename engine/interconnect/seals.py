"""Checksums that a source takes of leased blocks, at the start of the lease and not when they are read.

A reader's bytes must match what was there when the lease was granted. So a block that was reused too early is
noticed, whoever's mistake it was; and reading need not wait for a checksum.
"""

from __future__ import annotations

import threading

import numpy as np

from engine.interconnect.digest import Digests, digest
from engine.interconnect.layout import Offsets
from engine.interconnect.regions import Region
from engine.interconnect.runs import runs_of


class Seals:
    """The checksums of one lease. Safe to use from any thread: a run may be computed twice, to the same end."""

    def __init__(self, region: Region, blocks: tuple[int, ...], lease_id: str) -> None:
        self._region = region
        self._blocks = blocks
        self._seed = seed_of(lease_id)
        # By ascending offset; replaced as a whole when all are taken.
        self._taken: tuple[Offsets, Offsets, Digests] | None = None
        self._found: dict[tuple[int, int], int] = {}
        self._stopped = False
        self._filling = threading.Lock()

    def fill(self) -> None:
        """Take all of them, unless `stop` is called. A second caller waits for the first."""
        with self._filling:
            if self._taken is None:
                self._fill()

    def of(self, offsets: Offsets, lengths: Offsets) -> Digests:
        """Checksums of runs; those not taken yet are taken now."""
        if self._taken and len(offsets):
            taken_offsets, taken_lengths, values = self._taken
            at = np.minimum(np.searchsorted(taken_offsets, offsets), len(taken_offsets) - 1)
            if ((taken_offsets[at] == offsets) & (taken_lengths[at] == lengths)).all():
                return values[at]
        runs = zip(offsets.tolist(), lengths.tolist(), strict=True)
        return np.asarray([self._one(offset, length) for offset, length in runs], np.uint64)

    def stop(self) -> None:
        """The blocks are free to change."""
        self._stopped = True

    def _fill(self) -> None:
        layout = self._region.layout
        offsets, lengths = runs_of(layout, np.arange(layout.layers), np.asarray(self._blocks, np.int64))
        values = np.empty(len(offsets), np.uint64)
        for at, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
            if self._stopped:
                return
            values[at] = self._one(offset, length)
        self._taken = offsets, lengths, values

    def _one(self, offset: int, length: int) -> int:
        value = self._found.get((offset, length))
        if value is None:
            value = digest(self._region.bytes[offset : offset + length], self._seed)
            self._found[offset, length] = value
        return value


def seed_of(lease_id: str) -> int:
    """Differs from lease to lease, so that an answer for another one cannot pass."""
    return int(lease_id[:16], 16)
