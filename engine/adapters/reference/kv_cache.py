"""New keys and values into the paged cache."""

from __future__ import annotations

import torch

from engine.adapters.batch import PagedBatch


def fill_kv_cache(
    key: torch.Tensor, value: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: PagedBatch
) -> None:
    token = 0
    for row, (q_len, kv_len) in enumerate(zip(batch.q_lens, batch.kv_lens, strict=True)):
        for position in range(kv_len - q_len, kv_len):
            block = int(batch.block_offsets[row, position // batch.block_size])
            k_cache[block, position % batch.block_size] = key[token]
            v_cache[block, position % batch.block_size] = value[token]
            token += 1
