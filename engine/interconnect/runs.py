"""Chunks into runs: neighbours in the source's memory, joined. Source and reader cut alike without asking.

All layers of a layout are alike, so one is cut, and the others are that one, moved.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.interconnect.layout import KVLayout, Offsets

RUN_BYTES = 256 << 10
FIRST_LAYER = np.zeros(1, np.int64)


def chunks_of(layout: KVLayout, blocks: Offsets) -> tuple[Offsets, Offsets]:
    """(offset from the start of the layer, length) of every chunk, part by part, in the order of `blocks`."""
    offsets = [layout.offsets(part, FIRST_LAYER, blocks).ravel() for part in layout.parts]
    sizes = [layout.chunk_bytes(part) for part in layout.parts]
    return np.concatenate(offsets), np.repeat(np.asarray(sizes, np.int64), len(blocks))


def run_starts(offsets: Offsets, lengths: Offsets) -> npt.NDArray[np.intp]:
    """Indices of the chunks that begin a run, for chunks of a layer by ascending offset.

    A run ends at a gap, and where a chunk starts in another `RUN_BYTES` of the layer than the one before. So it
    depends on nothing but the chunks in it and before it, and is never much longer than `RUN_BYTES`.
    """
    if not len(offsets):
        return np.zeros(0, np.intp)
    slots = offsets // RUN_BYTES
    broken = (offsets[:-1] + lengths[:-1] != offsets[1:]) | (slots[:-1] != slots[1:])
    return np.concatenate(([0], np.flatnonzero(broken) + 1))


def runs_of(layout: KVLayout, layers: Offsets, blocks: Offsets) -> tuple[Offsets, Offsets]:
    """(offset, length) of the runs that these blocks make, by ascending offset."""
    offsets, lengths = chunks_of(layout, np.unique(blocks))
    order = np.argsort(offsets, kind="stable")
    offsets, lengths = offsets[order], lengths[order]
    starts = run_starts(offsets, lengths)
    if len(starts):
        offsets, lengths = offsets[starts], np.add.reduceat(lengths, starts)
    all_offsets = (layers[:, None] * layout.layer_stride + offsets[None, :]).ravel()
    order = np.argsort(all_offsets, kind="stable")
    return all_offsets[order], np.tile(lengths, len(layers))[order]
