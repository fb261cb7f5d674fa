"""Sampling follows the probabilities and can be repeated."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from engine.adapters.reference.sampling import multinomial_sampling, uniform  # noqa: E402


def test_the_same_seed_and_offset_give_the_same_token_in_any_batch() -> None:
    scores = torch.randn(32, 100, generator=torch.Generator().manual_seed(0)).softmax(-1)
    indices = torch.arange(100).expand(32, 100)
    seeds, offsets = torch.arange(32) * 31, torch.arange(32)
    together = multinomial_sampling(scores, seeds, offsets, indices)
    for row in range(32):
        one = slice(row, row + 1)
        assert multinomial_sampling(scores[one], seeds[one], offsets[one], indices[one]) == together[row]


def test_another_offset_gives_other_tokens() -> None:
    scores = torch.full((64, 1000), 1e-3)
    indices = torch.arange(1000).expand(64, 1000)
    seeds = torch.full((64,), 7)
    drawn = multinomial_sampling(scores, seeds, torch.arange(64), indices)
    assert len(set(drawn.tolist())) > 50


def test_frequencies_are_the_probabilities() -> None:
    count = 40_000
    probabilities = torch.tensor([0.5, 0.3, 0.0, 0.2])
    drawn = multinomial_sampling(
        probabilities.expand(count, 4), torch.arange(count), torch.zeros(count).long(), torch.arange(4).expand(count, 4)
    )
    frequencies = torch.bincount(drawn, minlength=4) / count
    assert frequencies[2] == 0
    assert float((frequencies - probabilities).abs().max()) < 0.01


def test_numbers_are_even_over_the_interval_for_any_seed() -> None:
    numbers = uniform(torch.arange(-5000, 5000), torch.full((10_000,), 3))
    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1
    assert float((torch.histc(numbers.float(), 10, 0, 1) / 1000 - 1).abs().max()) < 0.15
