"""The sequences of one step, as the attention operators see them; what all layers share is worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

# A tile of queries against its keys: so many numbers of mask at most, 16 MB.
TILE_QUERIES = 512
TILE_CELLS = 4 << 20


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What kind of attention a layer has.

    Attributes:
        scale: of the products of queries and keys.
        causal: no query sees keys after it.
        window: how many keys before and after its own a query sees; None: all of them.
        soft_cap: scores s become cap * tanh(s / cap); 0: they do not.
    """

    scale: float
    causal: bool = True
    window: tuple[int, int] | None = None
    soft_cap: float = 0.0


@dataclass(frozen=True, slots=True)
class Tile:
    """Queries that are computed together, with the keys that they can see.

    Attributes:
        rows: which sequences, each with as many queries and keys.
        start: of the queries, in the step's tokens: those of all rows lie one after the other.
        queries: how many each row has.
        keys: how many each row's last query sees, counted from the sequence's beginning.
        first: position of the first query.
    """

    rows: tuple[int, ...]
    start: int
    queries: int
    keys: int
    first: int


@dataclass(frozen=True)
class PagedBatch:
    """Sequences with their block tables.

    Attributes:
        block_offsets: (B, blocks at most), the block of each `block_size` positions; what is past a sequence's last
            block may be anything.
        q_lens, kv_lens: tokens of each sequence in this step, and in the cache after it. Its queries are its last
            positions.
        block_size: tokens a block.
    """

    block_offsets: torch.Tensor
    q_lens: Sequence[int]
    kv_lens: Sequence[int]
    block_size: int

    @cached_property
    def is_decoding(self) -> bool:
        """True if every sequence has exactly one new token."""
        return all(length == 1 for length in self.q_lens)

    @cached_property
    def positions(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(sequence, position) of each token of the step, both (T,)."""
        device = self.block_offsets.device
        lengths = torch.tensor(self.q_lens, device=device)
        rows = torch.repeat_interleave(torch.arange(len(self.q_lens), device=device), lengths)
        starts = torch.tensor(self.kv_lens, device=device) - torch.cumsum(lengths, 0)
        return rows, torch.arange(len(rows), device=device) + starts[rows]

    @cached_property
    def slots(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(block, offset in it) of each token of the step, both (T,)."""
        rows, positions = self.positions
        blocks = self.block_offsets[rows, positions // self.block_size].long()
        return blocks, positions % self.block_size

    def table(self, rows: Sequence[int], keys: int) -> torch.Tensor:
        """The block tables of some sequences, as far as `keys` positions, one after the other."""
        blocks = -(-keys // self.block_size)
        table = self.block_offsets[list(rows), :blocks] if len(rows) > 1 else self.block_offsets[rows[0], :blocks]
        return table.reshape(-1).long()

    @cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """The step's queries, cut so that masks stay small, equal neighbours together."""
        tiles: list[Tile] = []
        start = 0
        for row, (q_len, kv_len) in enumerate(zip(self.q_lens, self.kv_lens, strict=True)):
            for begin, end in _cuts(q_len, kv_len):
                first = kv_len - q_len + begin
                tile = Tile((row,), start + begin, end - begin, first + end - begin, first)
                before = tiles[-1] if tiles else None
                if before and _together(before, tile, q_len):
                    tiles[-1] = Tile((*before.rows, row), before.start, tile.queries, tile.keys, tile.first)
                else:
                    tiles.append(tile)
            start += q_len
        return tuple(tiles)


def _cuts(q_len: int, kv_len: int) -> list[tuple[int, int]]:
    size = max(16, min(TILE_QUERIES, TILE_CELLS // max(kv_len, 1)))
    return [(begin, min(begin + size, q_len)) for begin in range(0, q_len, size)]


def _together(before: Tile, tile: Tile, q_len: int) -> bool:
    """Whole sequences of the same lengths, as long as their masks are small together."""
    same = (before.queries, before.keys, before.first) == (tile.queries, tile.keys, tile.first)
    small = (len(before.rows) + 1) * tile.queries * tile.keys <= TILE_CELLS
    return same and small and tile.queries == q_len
