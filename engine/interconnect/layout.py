"""How a KV cache lies in memory, and whether two caches hold the same thing.

A cache is cut into *chunks*: one part (K, V, a quantisation scale) of one block in one layer. A chunk is
contiguous; chunks may lie anywhere, as the strides say. Vendors differ in the order inside a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.interconnect.errors import LayoutMismatch, OutOfBounds

Offsets = npt.NDArray[np.int64]

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}
MAX_CHUNKS = 1 << 24
MAX_BYTES = 1 << 46


class Order(StrEnum):
    """What varies slowest inside a chunk. LMDeploy, ascend and maca put tokens first, camb puts heads first."""

    TOKENS_FIRST = "block, heads, dim"
    HEADS_FIRST = "heads, block, dim"


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of numbers that a block holds for each token and head.

    Attributes:
        name: "k", "v", "k_scales", ...
        dim: numbers for each token and head.
        dtype: a key of `ITEM_BYTES`.
        offset: bytes from the start of a layer to this part of block 0.
        block_stride: bytes from this part of one block to that of the next.
    """

    name: str
    dim: int
    dtype: str
    offset: int
    block_stride: int

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Where every number of a paged KV cache lies in its buffer.

    Attributes:
        layers, blocks: how many of each the buffer holds.
        block_size: tokens a block.
        heads: KV heads in this buffer (after tensor parallelism).
        order: order inside a chunk.
        parts: what a block holds; the order of the tuple does not matter.
        layer_stride: bytes from one layer to the next.

    Raises:
        ValueError: sizes that are not positive, an unknown dtype, or too large to be true.
    """

    layers: int
    blocks: int
    block_size: int
    heads: int
    order: Order
    parts: tuple[Part, ...]
    layer_stride: int

    def __post_init__(self) -> None:
        if min(self.layers, self.blocks, self.block_size, self.heads, len(self.parts)) < 1:
            raise ValueError("a KV layout needs at least one layer, block, token, head and part")
        if len({part.name for part in self.parts}) < len(self.parts):
            raise ValueError("parts of a KV layout need different names")
        for part in self.parts:
            if part.dtype not in ITEM_BYTES:
                raise ValueError(f"unknown dtype {part.dtype!r}; known: {', '.join(ITEM_BYTES)}")
            if part.dim < 1 or part.offset < 0 or part.block_stride < 0 or part.offset % part.item_bytes:
                raise ValueError(f"part {part.name!r} has a size or an offset that cannot be")
        if self.layer_stride < 0 or self.chunks > MAX_CHUNKS or self.span > MAX_BYTES:
            raise ValueError("the KV layout is too large")

    @classmethod
    def interleaved(
        cls,
        *,
        layers: int,
        blocks: int,
        block_size: int,
        heads: int,
        dims: Mapping[str, int],
        dtype: str,
        order: Order = Order.TOKENS_FIRST,
    ) -> KVLayout:
        """LMDeploy's arrangement: for each layer, for each block, its parts side by side."""
        sizes = [block_size * heads * dim * ITEM_BYTES[dtype] for dim in dims.values()]
        row = sum(sizes)
        parts = tuple(Part(name, dim, dtype, sum(sizes[:at]), row) for at, (name, dim) in enumerate(dims.items()))
        return cls(layers, blocks, block_size, heads, order, parts, row * blocks)

    @classmethod
    def separate(
        cls,
        *,
        layers: int,
        blocks: int,
        block_size: int,
        heads: int,
        dims: Mapping[str, int],
        dtype: str,
        order: Order = Order.TOKENS_FIRST,
    ) -> KVLayout:
        """For each layer, one part of all blocks after the other."""
        sizes = [block_size * heads * dim * ITEM_BYTES[dtype] for dim in dims.values()]
        parts = tuple(
            Part(name, dim, dtype, sum(sizes[:at]) * blocks, sizes[at]) for at, (name, dim) in enumerate(dims.items())
        )
        return cls(layers, blocks, block_size, heads, order, parts, sum(sizes) * blocks)

    @classmethod
    def from_dict(cls, content: Any) -> KVLayout:
        """What `to_dict` gave, from a peer that may be anything.

        Raises:
            LayoutMismatch: it describes no layout.
        """
        try:
            parts = tuple(
                Part(
                    str(part["name"])[:64],
                    int(part["dim"]),
                    str(part["dtype"]),
                    int(part["offset"]),
                    int(part["block_stride"]),
                )
                for part in content["parts"][:16]
            )
            sizes = {key: int(content[key]) for key in _SIZES}
            return cls(**sizes, order=Order(content["order"]), parts=parts)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise LayoutMismatch(f"the peer describes no KV layout: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @property
    def chunks(self) -> int:
        return self.layers * self.blocks * len(self.parts)

    @property
    def span(self) -> int:
        """Bytes from the start of the buffer to the end of its last chunk."""
        last_layer = (self.layers - 1) * self.layer_stride
        ends = (p.offset + (self.blocks - 1) * p.block_stride + self.chunk_bytes(p) for p in self.parts)
        return last_layer + max(ends)

    def chunk_bytes(self, part: Part) -> int:
        return self.block_size * self.heads * part.dim * part.item_bytes

    def chunk_shape(self, part: Part) -> tuple[int, int, int]:
        """Shape of one chunk, in items."""
        if self.order is Order.TOKENS_FIRST:
            return self.block_size, self.heads, part.dim
        return self.heads, self.block_size, part.dim

    def block_bytes(self) -> int:
        """Bytes of one block in one layer, all parts."""
        return sum(self.chunk_bytes(part) for part in self.parts)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks a sequence of so many tokens fills."""
        return -(-tokens // self.block_size)

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)

    def offsets(self, part: Part, layers: Offsets, blocks: Offsets) -> Offsets:
        """Byte offset of each chunk, shape (layers, blocks)."""
        return layers[:, None] * self.layer_stride + part.offset + blocks[None, :] * part.block_stride

    def check(self, layers: Offsets, blocks: Offsets) -> None:
        """Raise OutOfBounds unless all of them exist."""
        for name, values, count in (("layer", layers, self.layers), ("block", blocks, self.blocks)):
            if values.size and (int(values.min()) < 0 or int(values.max()) >= count):
                raise OutOfBounds(f"a {name} outside 0..{count - 1}")

    def same_chunks(self, other: KVLayout) -> bool:
        """True if a chunk of one is byte for byte a chunk of the other, so that nothing needs repacking."""
        one_item = self.order is other.order or 1 in (self.block_size, self.heads)
        return self.block_size == other.block_size and one_item


def require_fit(remote: KVLayout, local: KVLayout) -> None:
    """Raise LayoutMismatch, saying why, unless `local` can take what `remote` holds.

    Number of blocks, block size, order and strides may differ: blocks are chosen one by one, the rest is repacked.
    """
    for name in ("layers", "heads"):
        if getattr(remote, name) != getattr(local, name):
            raise LayoutMismatch(f"{getattr(remote, name)} {name} there, {getattr(local, name)} here")
    there = {part.name: (part.dim, part.dtype) for part in remote.parts}
    here = {part.name: (part.dim, part.dtype) for part in local.parts}
    if there != here:
        raise LayoutMismatch(f"blocks hold {there} there, {here} here")


def common_tokens(remote: KVLayout, local: KVLayout) -> int:
    """The smallest number of tokens at which blocks of both end."""
    return math.lcm(remote.block_size, local.block_size)


_SIZES = ("layers", "blocks", "block_size", "heads", "layer_stride")
