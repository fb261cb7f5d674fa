"""The small operators with as few passes over memory, and as few calls, as torch allows."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engine.adapters.reference import rotary as reference_rotary


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, (x.size(-1),), weight, eps)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return F.rms_norm(total, (total.size(-1),), weight, eps), total


def layer_norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    return F.layer_norm(x, (x.size(-1),), weight, bias, eps)


def rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    if interleaved or cos.size(-1) != query.size(-1):
        return reference_rotary.rotary(query, key, cos, sin, interleaved)
    if cos.dim() == query.dim() - 1:
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    half = query.size(-1) // 2
    for x in (query, key):
        turned = torch.cat((x[..., half:].neg(), x[..., :half]), -1)
        x.mul_(cos).addcmul_(turned, sin)
    return query, key


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate).mul_(up)


def gelu_and_mul(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.gelu(gate, approximate=approximate).mul_(up)
