"""A registered buffer: its bytes, its layout, and which byte ranges a peer may name in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.interconnect.errors import OutOfBounds
from engine.interconnect.layout import KVLayout, Offsets, Part

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class Region:
    """A buffer that peers may read, chunk by chunk, and that transfers write into.

    Args:
        name: what peers call it, at most 64 characters.
        buffer: writable, contiguous: anything with the buffer protocol. A torch tensor on the CPU comes as
            `tensor.view(torch.uint8).numpy()`. Device memory has to be staged by its owner.
        layout: must fit into the buffer, and its chunks must not overlap.

    Raises:
        ValueError: neither of both holds.
    """

    def __init__(self, name: str, buffer: Any, layout: KVLayout) -> None:
        if not 0 < len(name) <= 64:
            raise ValueError("a region's name has 1 to 64 characters")
        memory = memoryview(buffer)
        if memory.readonly or not memory.c_contiguous:
            raise ValueError(f"the buffer of region {name!r} must be writable and contiguous")
        self.name = name
        self.layout = layout
        self.memory = memory.cast("B") if memory.nbytes else memory
        self.bytes: Bytes = np.frombuffer(self.memory, np.uint8)
        if layout.span > self.bytes.nbytes:
            raise ValueError(f"region {name!r}: the layout spans {layout.span} bytes of {self.bytes.nbytes}")
        self._starts, self._ends, self._block_of = _chunk_table(layout)
        if (self._ends[:-1] > self._starts[1:]).any():
            raise ValueError(f"region {name!r}: chunks overlap")

    @property
    def address(self) -> int:
        """Where the buffer lies in this process. Never leaves it."""
        return int(self.bytes.__array_interface__["data"][0])

    def check_runs(self, offsets: Offsets, lengths: Offsets, readable: Mask) -> None:
        """Raise OutOfBounds unless every run of bytes is a row of whole chunks of readable blocks.

        Args:
            offsets, lengths: bytes, one entry a run.
            readable: for each block, whether it may be read.
        """
        first = np.searchsorted(self._starts, offsets)
        after = np.searchsorted(self._starts, offsets + lengths)
        inside = (lengths > 0) & (first < len(self._starts)) & (after > first)
        if not inside.all():
            raise OutOfBounds(f"region {self.name!r}: a run of bytes outside the region")
        whole = (self._starts[first] == offsets) & (self._ends[after - 1] == offsets + lengths)
        if not whole.all():
            raise OutOfBounds(f"region {self.name!r}: a run of bytes that is not made of whole chunks")
        counts = after - first
        if int(counts.sum()) > len(self._starts):
            raise OutOfBounds(f"region {self.name!r}: more chunks at once than there are")
        chunks = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        if not readable[self._block_of[chunks]].all():
            raise OutOfBounds(f"region {self.name!r}: a block that is not leased")
        inner = np.ones(len(chunks), bool)
        inner[np.cumsum(counts) - 1] = False
        if (self._ends[chunks[inner]] != self._starts[chunks[inner] + 1]).any():
            raise OutOfBounds(f"region {self.name!r}: a run of bytes over a gap")

    def items(self, part: Part, layer: int) -> npt.NDArray[Any]:
        """One part of all blocks of a layer, shape (blocks, *chunk shape), as unsigned integers of its size."""
        layout = self.layout
        shape = layout.chunk_shape(part)
        dtype = np.dtype(f"u{part.item_bytes}")
        inner = (shape[1] * shape[2] * dtype.itemsize, shape[2] * dtype.itemsize, dtype.itemsize)
        return np.ndarray(
            (layout.blocks, *shape),
            dtype,
            buffer=self.memory,
            offset=layer * layout.layer_stride + part.offset,
            strides=(part.block_stride, *inner),
        )


def _chunk_table(layout: KVLayout) -> tuple[Offsets, Offsets, npt.NDArray[np.int32]]:
    """Start, end and block of every chunk, by ascending start."""
    layers, blocks = np.arange(layout.layers, dtype=np.int64), np.arange(layout.blocks, dtype=np.int64)
    starts = [layout.offsets(part, layers, blocks).ravel() for part in layout.parts]
    ends = [start + layout.chunk_bytes(part) for start, part in zip(starts, layout.parts, strict=True)]
    block_of = np.tile(blocks.astype(np.int32), layout.layers * len(layout.parts))
    all_starts, all_ends = np.concatenate(starts), np.concatenate(ends)
    order = np.argsort(all_starts, kind="stable")
    return all_starts[order], all_ends[order], block_of[order]
