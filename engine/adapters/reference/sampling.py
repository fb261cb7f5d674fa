"""Choosing a token by its probability, reproducibly."""

from __future__ import annotations

import torch


def multinomial_sampling(
    scores: torch.Tensor, seeds: torch.Tensor, offsets: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    drawn = uniform(seeds, offsets)[:, None].to(scores.device)
    running = scores.double().cumsum(-1)
    # Of all the probability there is: rounding may leave a row's sum a little off one.
    chosen = torch.searchsorted(running, drawn * running[:, -1:], right=True).clamp_(max=scores.size(-1) - 1)
    return indices.gather(1, chosen).view(-1)


def uniform(seeds: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """A number in [0, 1) for each pair of seed and offset: SplitMix64 (Steele, Lea, Flood 2014) of both, 53 bits."""
    state = _mix(_mix(seeds.long()) + offsets.long() * _GOLDEN)
    return _shift(state, 11).double() * 2.0**-53


_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MULTIPLIERS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))


def _mix(x: torch.Tensor) -> torch.Tensor:
    """SplitMix64's output function, in 64-bit integers that wrap around."""
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MULTIPLIERS[0]
    x = (x ^ _shift(x, 27)) * _MULTIPLIERS[1]
    return x ^ _shift(x, 31)


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Right, filling with zeros: torch fills with the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
