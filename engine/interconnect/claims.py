"""Local blocks that a transfer may still write into. A second transfer into them is refused, so no two ever mix."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from engine.interconnect.errors import Backpressure
from engine.interconnect.regions import Region


class Claims:
    """Which blocks of which region are claimed. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[Region, set[int]] = {}

    def claim(self, region: Region, blocks: Sequence[int]) -> Callable[[], None]:
        """Claim all of them; call the answer to give them back. Raises Backpressure if one is claimed already."""
        wanted = frozenset(blocks)
        with self._lock:
            claimed = self._blocks.setdefault(region, set())
            if taken := claimed & wanted:
                raise Backpressure(f"{len(taken)} local blocks may still be written by an earlier transfer")
            claimed |= wanted
        return lambda: self._give_back(region, wanted)

    def of(self, region: Region) -> frozenset[int]:
        """Blocks that are not safe to use now."""
        with self._lock:
            return frozenset(self._blocks.get(region, ()))

    def _give_back(self, region: Region, blocks: frozenset[int]) -> None:
        with self._lock:
            claimed = self._blocks[region]
            claimed -= blocks
            if not claimed:
                del self._blocks[region]
