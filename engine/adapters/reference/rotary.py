"""Rotary position embedding (RoFormer, arXiv:2104.09864), in the two orders of numbers that models use."""

from __future__ import annotations

import torch


def rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    for x in (query, key):
        x.copy_(x * _per_head(cos, x, interleaved) + _turned(x, interleaved) * _per_head(sin, x, interleaved))
    return query, key


def _per_head(table: torch.Tensor, x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Tables of half the width have one entry for each pair of numbers."""
    if table.size(-1) * 2 == x.size(-1):
        table = table.repeat_interleave(2, -1) if interleaved else torch.cat((table, table), -1)
    return table.unsqueeze(-2) if table.dim() == x.dim() - 1 else table


def _turned(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    half = x.size(-1) // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)
