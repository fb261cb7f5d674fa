"""An engine's KV cache as the interconnect sees it: a buffer of this host and a layout.

On the CPU that is the cache itself. The cache of a device is mirrored, block by block, in memory of the host: blocks
are copied out before they are leased, and in after they were pulled and verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from engine.interconnect.arena import SharedArena
from engine.interconnect.errors import Unavailable
from engine.interconnect.layout import KVLayout, Order, Part


class KVCache:
    """Of one LMDeploy cache engine.

    Args:
        cache_engine: LMDeploy's, after allocation.
        order: inside a block, as the vendor has it.
        staged: mirror it in host memory even if the host can reach it.

    Attributes:
        layout: where every number lies in `buffer`.
        buffer: bytes in a `SharedArena` if `is_shared`.

    Raises:
        Unavailable: a cache of a kind whose blocks cannot be moved.
    """

    def __init__(self, cache_engine: Any, order: Order = Order.TOKENS_FIRST, *, staged: bool = False) -> None:
        allocation, plan = cache_engine.gpu_allocation, cache_engine.block_cache_plan
        if len(allocation.pools) != 1 or plan.kernel_blocks_per_logical_block != 1:
            raise Unavailable("only KV caches of one pool, with one kernel block for each block, can be moved")
        self._pool: torch.Tensor = allocation.pools[0].tensor
        self.layout = _layout(self._pool, plan.tensor_specs, order)
        self._mirror: torch.Tensor | None = None
        arena: SharedArena | None = getattr(cache_engine, "arena", None)
        if staged or self._pool.device.type != "cpu":
            arena = SharedArena(self.layout.span)
            self._mirror = torch.frombuffer(arena.buffer, dtype=torch.uint8)[: self._pool.numel()].view(
                self._pool.shape
            )
        self.is_shared = arena is not None
        self._arena = arena
        self.buffer: Any = arena.buffer[: self.layout.span] if arena else self._pool.numpy().reshape(-1).data

    @property
    def is_staged(self) -> bool:
        return self._mirror is not None

    @property
    def token_bytes(self) -> int:
        """Bytes of KV for each token, all layers."""
        return self.layout.block_bytes() * self.layout.layers // self.layout.block_size

    def before_lease(self, blocks: Sequence[int]) -> None:
        """Make blocks readable for peers. In the engine's thread."""
        if self._mirror is not None:
            at = torch.as_tensor(blocks, device=self._pool.device)
            self._mirror[:, list(blocks)] = self._pool[:, at].cpu()

    def after_pull(self, blocks: Sequence[int]) -> None:
        """Make what was pulled known to the engine. In the engine's thread."""
        if self._mirror is not None:
            at = torch.as_tensor(blocks, device=self._pool.device)
            self._pool[:, at] = self._mirror[:, list(blocks)].to(self._pool.device)


def _layout(pool: torch.Tensor, specs: Sequence[Any], order: Order) -> KVLayout:
    """From LMDeploy's arrangement: for each layer, for each block, its parts side by side, each part aligned."""
    layers, blocks, row = pool.shape
    parts: list[Part] = []
    offset = 0
    sizes: set[tuple[int, int]] = set()
    for spec in specs:
        shape = tuple(spec.desc.shape)
        if len(shape) != 3 or spec.consumer_rows is not None or spec.layer_rows is not None:
            raise Unavailable(f"the cache {spec.name!r} of shape {shape} is of a kind that cannot be moved")
        sizes.add((shape[0], shape[1]))
        dtype = str(spec.desc.dtype).removeprefix("torch.")
        parts.append(Part(spec.name, shape[2], dtype, offset, row))
        offset += spec.desc.aligned_size
    if len(sizes) != 1:
        raise Unavailable(f"parts of a block differ in tokens and heads: {sorted(sizes)}")
    first, second = sizes.pop()
    block_size, heads = (first, second) if order is Order.TOKENS_FIRST else (second, first)
    return KVLayout(layers, blocks, block_size, heads, order, tuple(parts), row * blocks)
