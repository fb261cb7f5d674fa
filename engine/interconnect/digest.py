"""Checksums of what moves: XXH3, one for each run of bytes, seeded by the lease.

Bytes that are copied or received are checked piece by piece, while they are still in the cache: that makes the check
several times cheaper than a pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import xxhash

from engine.interconnect.layout import Offsets
from engine.interconnect.regions import Bytes

Digests = npt.NDArray[np.uint64]

PIECE = 256 << 10
MOST_VIEWS = 1000


def digest(data: Bytes, seed: int) -> int:
    """Checksum of one run of bytes."""
    return int(xxhash.xxh3_64_intdigest(data.data, seed))


class RunDigests:
    """Checksums of runs whose bytes come in pieces, in order."""

    def __init__(self, lengths: Iterable[int], seed: int) -> None:
        self._lengths = iter(lengths)
        self._seed = seed
        self._state: xxhash.xxh3_64 | None = None
        self._left = 0
        self._found: list[int] = []

    def update(self, piece: memoryview) -> None:
        """The next bytes; a piece may end one run and begin others."""
        while piece:
            if not self._left:
                self._left = next(self._lengths)
            here, piece = piece[: self._left], piece[self._left :]
            if self._state is None:
                if here.nbytes == self._left:
                    # The usual case: all of a run at once.
                    self._found.append(xxhash.xxh3_64_intdigest(here, self._seed))
                    self._left = 0
                    continue
                self._state = xxhash.xxh3_64(seed=self._seed)
            self._state.update(here)
            self._left -= here.nbytes
            if not self._left:
                self._found.append(self._state.intdigest())
                self._state = None

    def result(self) -> Digests:
        return np.asarray(self._found, np.uint64)


def stretches(memory: memoryview, offsets: Offsets, lengths: Offsets) -> Iterator[memoryview]:
    """The memory of some runs, in their order; neighbours are one view."""
    if not len(offsets):
        return
    ends = offsets + lengths
    breaks = np.flatnonzero(offsets[1:] != ends[:-1])
    first, last = np.concatenate(([0], breaks + 1)), np.append(breaks, len(offsets) - 1)
    for start, end in zip(offsets[first].tolist(), ends[last].tolist(), strict=True):
        yield memory[start:end]


def cut(views: Iterable[memoryview], nbytes: int) -> Iterator[memoryview]:
    """The same memory in views of at most so many bytes."""
    for view in views:
        for at in range(0, view.nbytes, nbytes):
            yield view[at : at + nbytes]


def groups(views: Iterable[memoryview], nbytes: int) -> Iterator[list[memoryview]]:
    """Views in groups of about so many bytes, and no more than one system call takes."""
    group: list[memoryview] = []
    size = 0
    for view in views:
        group.append(view)
        size += view.nbytes
        if size >= nbytes or len(group) == MOST_VIEWS:
            yield group
            group, size = [], 0
    if group:
        yield group
