"""Attention, sequence by sequence, as a matrix of scores in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.adapters.batch import AttentionSpec, PagedBatch


def prefill_attention(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: PagedBatch,
    spec: AttentionSpec,
    alibi: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    out = query.new_empty(*query.shape[:-1], v_cache.size(-1))
    start = 0
    for row, (q_len, kv_len) in enumerate(zip(batch.q_lens, batch.kv_lens, strict=True)):
        table = batch.table((row,), kv_len)
        keys, values = (cache[table].flatten(0, 1)[:kv_len] for cache in (k_cache, v_cache))
        out[start : start + q_len] = attend(query[start : start + q_len], keys, values, spec, alibi, sink)
        start += q_len
    return out


def paged_decode_attention(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    batch: PagedBatch,
    spec: AttentionSpec,
    alibi: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    return prefill_attention(query, k_cache, v_cache, batch, spec, alibi, sink)


def vision_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    q_lens: Sequence[int],
    kv_lens: Sequence[int],
    spec: AttentionSpec,
) -> torch.Tensor:
    parts = zip(query.split(list(q_lens)), key.split(list(kv_lens)), value.split(list(kv_lens)), strict=True)
    return torch.cat([attend(q, k, v, spec) for q, k, v in parts])


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    spec: AttentionSpec,
    alibi: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """One sequence: queries (Q, H, D), its last positions, against keys (L, K, D) and values (L, K, Dv)."""
    q_len, heads, kv_len = query.size(0), query.size(1), key.size(0)
    groups = heads // key.size(1)
    keys, values = (x.float().repeat_interleave(groups, 1) for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * spec.scale
    if spec.soft_cap:
        scores = spec.soft_cap * torch.tanh(scores / spec.soft_cap)
    distance = (
        torch.arange(kv_len, device=query.device) - torch.arange(kv_len - q_len, kv_len, device=query.device)[:, None]
    )
    if alibi is not None:
        scores = scores - alibi.float().abs()[:, None, None] * distance.abs()
    scores = scores.masked_fill(~visible(distance, spec), float("-inf"))
    if sink is not None:
        extra = sink.float()[:, None, None].expand(heads, q_len, 1)
        weights = torch.cat((scores, extra), -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)


def visible(distance: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Which keys a query sees, by the key's position minus the query's."""
    seen = torch.ones_like(distance, dtype=torch.bool)
    if spec.causal:
        seen &= distance <= 0
    if spec.window is not None:
        before, after = spec.window
        if before >= 0:
            seen &= distance >= -before
        if after >= 0:
            seen &= distance <= after
    return seen
