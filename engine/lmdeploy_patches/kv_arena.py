"""LMDeploy's KV cache in memory that other processes of the host can map, so that they read it where it is."""

from __future__ import annotations

from typing import Any

from engine.interconnect.arena import SharedArena
from engine.lmdeploy_patches.hooks import function, replace

_ENGINE = "lmdeploy.pytorch.engine.cache_engine.engine:CacheEngine"


def install_kv_arena() -> None:
    """Allocate the cache in a `SharedArena`, kept as `cache_engine.arena`; CPU only. Raises LMDeployChanged."""
    hook = f"{_ENGINE}.allocate_gpu_cache"
    original = function(hook, ["self"])
    function(f"{_ENGINE}._build_block_cache_view", ["self", "caches"])
    function(f"{_ENGINE}._build_model_layer_cache", ["self", "caches"])
    plan = "lmdeploy.pytorch.engine.cache_engine.plan:BlockCachePlan.allocate"
    function(plan, ["self", "num_logical_blocks", "device"])

    def allocate_gpu_cache(self: Any) -> Any:
        shape = self.block_cache_plan.allocate(num_logical_blocks=self.cache_config.num_gpu_blocks, device="meta")
        if len(shape.pools) != 1 or not shape.nbytes:
            # Caches of several pools (state space models, row caches) stay where LMDeploy puts them.
            return original(self)
        self.arena, self.gpu_allocation = _in_arena(shape)
        caches = self.gpu_allocation.tensor_views
        self._block_caches = self._build_block_cache_view(caches)
        return self._build_model_layer_cache(caches)

    replace(hook, allocate_gpu_cache)


def _in_arena(shape: Any) -> tuple[SharedArena, Any]:
    """The same tensors, with one arena under them. `shape`: an allocation on the meta device."""
    import numpy as np
    import torch
    from lmdeploy.pytorch.engine.cache_engine.layout import CacheAllocation, CachePool

    arena = SharedArena(shape.nbytes)
    raw = torch.from_numpy(np.frombuffer(arena.buffer, np.uint8)[: shape.nbytes])

    def place(tensor: Any) -> Any:
        typed = raw.view(tensor.dtype)
        return typed.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    (pool,) = shape.pools
    views = tuple(place(view) for view in shape.tensor_views)
    return arena, CacheAllocation((CachePool(place(pool.tensor), entry_axis=pool.entry_axis),), views)
