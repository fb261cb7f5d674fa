"""What LMDeploy takes from sequences and from the cache of prefixes when blocks run short. It counts neither."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from engine.lmdeploy_patches.hooks import function


@dataclass(slots=True)
class Evictions:
    """Of one engine since its start. Written in the engine's thread; numbers may be read from any.

    Attributes:
        sequences: pushed out, to be computed again.
        blocks: of beginnings that were cached, and gave way.
    """

    sequences: int = 0
    blocks: int = 0


def count_evictions(engine: Any) -> Evictions:
    """Count from now on. Raises LMDeployChanged."""
    function(
        "lmdeploy.pytorch.paging.eviction_helper.recompute_eviction_helper:RecomputeEvictionHelper._reclaim_candidate",
        ["self", "seq"],
    )
    function("lmdeploy.pytorch.paging.block_trie:BlockTrie.evict", ["self", "max_num_blocks"])
    found = Evictions()
    helper, trie = engine.scheduler.eviction_helper, engine.scheduler.block_trie
    reclaim, evict = helper._reclaim_candidate, trie.evict

    @functools.wraps(reclaim)
    def counted_reclaim(seq: Any) -> bool:
        pushed_out = bool(reclaim(seq))
        found.sequences += pushed_out
        return pushed_out

    @functools.wraps(evict)
    def counted_evict(max_num_blocks: int) -> int:
        blocks = int(evict(max_num_blocks) or 0)
        found.blocks += blocks
        return blocks

    helper._reclaim_candidate, trie.evict = counted_reclaim, counted_evict
    return found
