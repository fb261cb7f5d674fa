"""Penalties and n-gram blocking are those of transformers and of OpenAI's definition."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor  # noqa: E402

from engine.pools.messages import Sampling  # noqa: E402
from engine.pools.sampling import NoRepeatNGram, RepetitionPenalty, logits_processors  # noqa: E402

VOCABULARY = 12
histories = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40)


def logits() -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(3))


def padded(history: list[int]) -> torch.Tensor:
    """As a row of a batch comes: padding on either side, and between old and new tokens."""
    return torch.tensor([-1, -1, *history[:1], -1, *history[1:], -1])


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(1, 5))
def test_n_grams_are_blocked_as_by_transformers(history: list[int], size: int) -> None:
    expected = NoRepeatNGramLogitsProcessor(size)(torch.tensor([history]), logits()[None])[0]
    assert torch.equal(NoRepeatNGram(size)(padded(history), logits()), expected)


@settings(max_examples=60, deadline=None)
@given(histories, st.floats(0.5, 2))
def test_repetition_is_penalised_as_by_transformers(history: list[int], penalty: float) -> None:
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([history]), logits()[None])[0]
    assert torch.equal(RepetitionPenalty(penalty)(padded(history), logits()), expected)


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(0, 20), st.floats(-2, 2), st.floats(-2, 2))
def test_presence_and_frequency_count_the_answer_alone(
    history: list[int], prompt: int, presence: float, frequency: float
) -> None:
    expected = logits()
    for token in set(history[prompt:]):
        expected[token] -= presence + frequency * history[prompt:].count(token)
    found = logits()
    sampling = Sampling(presence_penalty=presence, frequency_penalty=frequency)
    for processor in logits_processors(sampling, prompt):
        found = processor(padded(history), found)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_plain_request_pays_for_no_processor() -> None:
    assert logits_processors(Sampling(), 10) == []
