"""Attention over the paged cache on the CPU: whole batches and tiles in one call of torch's fused kernel.

The kernel cannot read pages, so the blocks of a batch are gathered first: with `index_select`, which copies whole
blocks, several times faster here than indexing. Query heads that share a KV head become queries of that head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engine.adapters.batch import AttentionSpec, PagedBatch, Tile
from engine.adapters.reference import attention as reference
from engine.adapters.reference.attention import visible


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What every layer of a decode step needs: made once, tensors only, so that a graph can take it as its inputs.

    Attributes:
        table: (B * n), the first n blocks of each sequence.
        bias: (B, 1, 1, n * block_size), 0 where there is a key and -inf where there is none, in the query's dtype.
        blocks, offsets: (B,), the slot of each new token.
    """

    table: torch.Tensor
    bias: torch.Tensor
    blocks: torch.Tensor
    offsets: torch.Tensor


def decode_plan(
    block_offsets: torch.Tensor, kv_lens: torch.Tensor, most: int, block_size: int, dtype: torch.dtype
) -> DecodePlan:
    """Plan a step of one token for each sequence.

    Args:
        block_offsets: (B, at least enough for `most`); entries past a sequence's last block may be anything.
        kv_lens: (B,), with the new token.
        most: the largest of `kv_lens`.
    """
    count = -(-most // block_size)
    last = kv_lens.long() - 1
    table = block_offsets[:, :count].long()
    used = torch.arange(count, device=table.device) * block_size < kv_lens[:, None]
    table = table.where(used, table[:, :1])
    hidden = torch.arange(count * block_size, device=table.device) >= kv_lens[:, None]
    bias = torch.zeros(hidden.shape, dtype=dtype, device=table.device).masked_fill_(hidden, float("-inf"))
    blocks = table.gather(1, (last // block_size)[:, None])[:, 0]
    return DecodePlan(table.reshape(-1), bias[:, None, None, :], blocks, last % block_size)


def decode(
    query: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: DecodePlan, scale: float
) -> torch.Tensor:
    """`paged_decode_attention` for plain causal attention, by a plan."""
    batch, heads, dim = query.shape
    kv_heads = k_cache.size(2)
    keys, values = (
        cache.index_select(0, plan.table).view(batch, -1, kv_heads, cache.size(3)).transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    grouped = query.reshape(batch, kv_heads, heads // kv_heads, dim)
    attended = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=plan.bias, scale=scale)
    return attended.reshape(batch, heads, -1)


def fill_kv_cache(
    key: torch.Tensor, value: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: PagedBatch
) -> None:
    k_cache[batch.slots] = key.to(k_cache.dtype)
    v_cache[batch.slots] = value.to(v_cache.dtype)


def paged_decode_attention(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: PagedBatch,
    spec: AttentionSpec,
    alibi: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    if not is_plain(spec, alibi, sink) or spec.window is not None:
        return prefill_attention(query, k_cache, v_cache, batch, spec, alibi, sink)
    kv_lens = torch.tensor(batch.kv_lens)
    plan = decode_plan(batch.block_offsets, kv_lens, max(batch.kv_lens), batch.block_size, query.dtype)
    return decode(query, k_cache, v_cache, plan, spec.scale)


def prefill_attention(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: PagedBatch,
    spec: AttentionSpec,
    alibi: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    if not is_plain(spec, alibi, sink) or not spec.causal:
        return reference.prefill_attention(query, k_cache, v_cache, batch, spec, alibi, sink)
    out = query.new_empty(*query.shape[:-1], v_cache.size(-1))
    for tile in batch.tiles:
        end = tile.start + len(tile.rows) * tile.queries
        out[tile.start : end] = _tile(query[tile.start : end], k_cache, v_cache, batch, tile, spec)
    return out


def _tile(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: PagedBatch,
    tile: Tile,
    spec: AttentionSpec,
) -> torch.Tensor:
    rows, heads, kv_heads = len(tile.rows), query.size(1), k_cache.size(2)
    groups = heads // kv_heads
    table = batch.table(tile.rows, tile.keys)
    keys, values = (
        cache.index_select(0, table).view(rows, -1, kv_heads, cache.size(3))[:, : tile.keys].transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    grouped = query.view(rows, tile.queries, kv_heads, groups, -1).permute(0, 2, 3, 1, 4)
    if rows == 1 and tile.first == 0 and spec.window is None:
        # KV heads become the batch, so that keys are shared without a copy; the kernel skips what no query sees.
        shape = kv_heads, groups, tile.keys, -1
        attended = F.scaled_dot_product_attention(
            grouped[0],
            keys[0][:, None].expand(*shape),
            values[0][:, None].expand(*shape),
            is_causal=True,
            scale=spec.scale,
        )[None]
    else:
        bias = _tile_bias(tile, spec, query.dtype).repeat(groups, 1)
        attended = F.scaled_dot_product_attention(
            grouped.reshape(rows, kv_heads, groups * tile.queries, -1),
            keys,
            values,
            attn_mask=bias[None, None],
            scale=spec.scale,
        ).view(rows, kv_heads, groups, tile.queries, -1)
    return attended.permute(0, 3, 1, 2, 4).reshape(rows * tile.queries, heads, -1)


def _tile_bias(tile: Tile, spec: AttentionSpec, dtype: torch.dtype) -> torch.Tensor:
    distance = torch.arange(tile.keys) - torch.arange(tile.first, tile.first + tile.queries)[:, None]
    return torch.zeros(distance.shape, dtype=dtype).masked_fill_(~visible(distance, spec), float("-inf"))


def vision_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    q_lens: Sequence[int],
    kv_lens: Sequence[int],
    spec: AttentionSpec,
) -> torch.Tensor:
    if not is_plain(spec, None, None) or spec.window is not None:
        return reference.vision_attention(query, key, value, q_lens, kv_lens, spec)
    out = query.new_empty(*query.shape[:-1], value.size(-1))
    q_start = kv_start = 0
    for count, q_len, kv_len in _runs(q_lens, kv_lens):
        q_end, kv_end = q_start + count * q_len, kv_start + count * kv_len
        queries = query[q_start:q_end].unflatten(0, (count, q_len)).transpose(1, 2)
        keys, values = (x[kv_start:kv_end].unflatten(0, (count, kv_len)).transpose(1, 2) for x in (key, value))
        bias = None
        if spec.causal:
            distance = torch.arange(kv_len) - torch.arange(kv_len - q_len, kv_len)[:, None]
            bias = torch.zeros(distance.shape, dtype=query.dtype).masked_fill_(distance > 0, float("-inf"))
        attended = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=bias, scale=spec.scale, enable_gqa=query.size(1) != key.size(1)
        )
        out[q_start:q_end] = attended.transpose(1, 2).flatten(0, 1)
        q_start, kv_start = q_end, kv_end
    return out


def _runs(q_lens: Sequence[int], kv_lens: Sequence[int]) -> list[tuple[int, int, int]]:
    """Neighbours of equal lengths: (how many, queries, keys)."""
    runs: list[tuple[int, int, int]] = []
    for q_len, kv_len in zip(q_lens, kv_lens, strict=True):
        if runs and runs[-1][1:] == (q_len, kv_len):
            runs[-1] = (runs[-1][0] + 1, q_len, kv_len)
        elif q_len:
            runs.append((1, q_len, kv_len))
    return runs


def is_plain(spec: AttentionSpec, alibi: torch.Tensor | None, sink: torch.Tensor | None) -> bool:
    """True if the fused kernel can compute it."""
    return not spec.soft_cap and alibi is None and sink is None
