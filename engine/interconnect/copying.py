"""Copying a batch within this host's memory, checking every piece while it is still in the cache."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from engine.interconnect.digest import PIECE, Digests, RunDigests
from engine.interconnect.plan import Batch
from engine.interconnect.regions import Bytes

# What a thread takes at a time.
PART_BYTES = 2 << 20
# Shorter fragments are copied with the interpreter locked most of the time: threads would only get in each other's
# way.
SHARED_FRAGMENT = 128 << 10


class Copier:
    """Threads that copy large batches together with whoever asks.

    Args:
        threads: how many copy one batch, the caller's included. One core seldom moves all that memory can.
        most: batches that are copied at once.
    """

    def __init__(self, threads: int, most: int, name: str) -> None:
        self._helpers = threads - 1
        self._pool = ThreadPoolExecutor(max(1, self._helpers * most), thread_name_prefix=name)

    def copy(self, source: Bytes, batch: Batch, seed: int, check: Callable[[], None]) -> Digests:
        """As `copy_batch`. Nothing of it is running any more when this function ends."""
        if batch.nbytes < max(2 * PART_BYTES, SHARED_FRAGMENT * len(batch.fragments)):
            return copy_batch(source, batch, seed, check)
        parts = batch.parts(PART_BYTES)
        found: list[Digests] = [np.zeros(0, np.uint64)] * len(parts)
        left = iter(range(len(parts)))

        def work() -> None:
            for at in left:
                found[at] = copy_batch(source, parts[at], seed, check)

        helpers = [self._pool.submit(work) for _ in range(min(self._helpers, len(parts) - 1))]
        try:
            work()
        finally:
            # One that has not begun by now has nothing left to do.
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()
        return np.concatenate(found)

    def close(self) -> None:
        self._pool.shutdown()


def copy_batch(source: Bytes, batch: Batch, seed: int, check: Callable[[], None]) -> Digests:
    """Copy all runs into place; the checksums of what stands there then.

    Args:
        check: called every few pieces; may raise, to stop.
    """
    digests = RunDigests(batch.lengths.tolist(), seed)
    starts = iter(batch.remote.tolist())
    target = batch.target
    unchecked = base = 0
    for within, there, size in batch.fragments:
        if within == 0:
            base = next(starts)
        written = target[there : there + size]
        np.copyto(written, source[base + within : base + within + size])
        digests.update(written.data)
        unchecked += size
        if unchecked >= PIECE:
            unchecked = 0
            check()
    return digests.result()
