"""From one vendor's chunks to another's, through the canonical form (token, head, dim)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.interconnect.layout import KVLayout, Offsets, Order, Part
from engine.interconnect.regions import Bytes, Region

Items = npt.NDArray[np.generic]


def place(
    remote: KVLayout,
    local: Region,
    layer: int,
    here: Offsets,
    span: tuple[int, int],
    staging: Bytes,
    skipped: int = 0,
) -> Callable[[], None]:
    """What writes staged chunks of one layer to where their tokens belong.

    Args:
        here: the local blocks of the whole sequence.
        span: first token and the one after the last, counted from the beginning of the first local block.
        staging: remote chunks, part by part, in the order of the sequence.
        skipped: tokens at the beginning of the staged ones that are written nowhere.
    """

    def write() -> None:
        start = 0
        blocks = len(staging) // remote.block_bytes()
        for part in remote.parts:
            stop = start + blocks * remote.chunk_bytes(part)
            tokens = canonical(remote, part, staging[start:stop])[skipped : skipped + span[1] - span[0]]
            _scatter(local, local.layout.part(part.name), layer, here, span, tokens)
            start = stop

    return write


def canonical(layout: KVLayout, part: Part, chunks: Bytes) -> Items:
    """Chunks, one after the other, as (token, head, dim)."""
    items = chunks.view(f"u{part.item_bytes}").reshape(-1, *layout.chunk_shape(part))
    if layout.order is Order.HEADS_FIRST:
        items = items.transpose(0, 2, 1, 3)
    return items.reshape(-1, *items.shape[2:])


def _scatter(local: Region, part: Part, layer: int, here: Offsets, span: tuple[int, int], tokens: Items) -> None:
    layout, size = local.layout, local.layout.block_size
    items = local.items(part, layer)
    start, stop = span
    whole = (stop - start) // size if start % size == 0 else 0
    if whole:
        blocks = tokens[: whole * size].reshape(whole, size, *tokens.shape[1:])
        if layout.order is Order.HEADS_FIRST:
            blocks = blocks.transpose(0, 2, 1, 3)
        items[here[start // size : start // size + whole]] = blocks
    rest = np.arange(start + whole * size, stop)
    if layout.order is Order.TOKENS_FIRST:
        items[here[rest // size], rest % size] = tokens[whole * size :]
    else:
        items[here[rest // size], :, rest % size] = tokens[whole * size :]
