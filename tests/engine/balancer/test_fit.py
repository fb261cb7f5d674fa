"""A fit finds the costs that samples were made from, noise and outliers or not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.balancer.costs import Costs
from engine.balancer.fit import PrefillSample, Samples, StepSample, TooFewSamples, TransferSample, fit
from engine.balancer.load import load_of

TRUE = Costs(
    prefill_request_s=4e-3,
    visual_token_s=8e-5,
    text_token_s=1.5e-5,
    attention_s=3e-9,
    step_s=9e-3,
    step_kv_token_s=4e-8,
    step_sequence_s=3e-4,
    transfer_latency_s=3e-3,
    bandwidth_bytes_s=2e9,
)


def samples(noise: float, seed: int = 0, images: bool = True) -> Samples:
    rng = random.Random(seed)

    def shaken(seconds: float) -> float:
        return seconds * rng.gauss(1, noise)

    prompts = [(0, 2**power) for power in range(5, 13)] + [(v, 40) for v in (64, 256, 1024, 2048) if images]
    batches = [(n, n * context) for n in (1, 2, 4, 8, 16, 32) for context in (100.0, 1000.0, 4000.0)]
    return Samples(
        [PrefillSample(v, t, shaken(TRUE.prefill_s(load_of(v, t, 0)))) for v, t in prompts for _ in range(5)],
        [StepSample(n, kv, shaken(TRUE.step(n, kv))) for n, kv in batches for _ in range(3)],
        [
            TransferSample(
                n << 20,
                shaken((n << 20) / TRUE.bandwidth_bytes_s),
                TRUE.transfer_latency_s + (n << 20) / TRUE.bandwidth_bytes_s,
            )
            for n in (1, 8, 32, 64)
            for _ in range(5)
        ],
        fronts=[0.01, 0.02, 0.5],
        flips=[0.3, 0.32, 0.28],
        sizes={"max_sequences": 16},
    )


def test_without_noise_the_costs_are_found_exactly() -> None:
    found = fit(samples(0.0), "a test")
    for name in ("prefill_request_s", "visual_token_s", "text_token_s", "attention_s", "step_s", "step_kv_token_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=1e-3)
    assert found.step_sequence_s == pytest.approx(TRUE.step_sequence_s, rel=1e-3)
    assert found.bandwidth_bytes_s == pytest.approx(TRUE.bandwidth_bytes_s, rel=1e-3)
    assert found.transfer_latency_s == pytest.approx(TRUE.transfer_latency_s, rel=1e-3)
    assert (found.flip_s, found.front_s, found.max_sequences) == (0.3, 0.01, 16)
    assert found.source == "a test"
    assert dict(found.error)["prefill"] < 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_with_noise_predictions_are_near_and_the_error_says_how_near(seed: int) -> None:
    found = fit(samples(0.05, seed), "a test")
    for visual, text in ((0, 100), (0, 3000), (500, 40), (1500, 200)):
        load = load_of(visual, text, 0)
        assert found.prefill_s(load) == pytest.approx(TRUE.prefill_s(load), rel=0.1)
    for sequences, kv in ((1, 500), (8, 8000), (24, 60_000)):
        assert found.step(sequences, kv) == pytest.approx(TRUE.step(sequences, kv), rel=0.1)
    assert 0.005 < dict(found.error)["step"] < 0.1


def test_a_pause_of_the_machine_does_not_count() -> None:
    shaken = samples(0.01)
    first = shaken.prefills[0]
    shaken.prefills[0] = replace(first, seconds=50 * first.seconds)
    assert fit(shaken, "a test").prefill_request_s == pytest.approx(TRUE.prefill_request_s, rel=0.1)


def test_costs_below_zero_are_not_found() -> None:
    falling = Samples(
        [PrefillSample(0, tokens, 1e-2 - 1e-6 * tokens) for tokens in (10, 100, 1000)],
        [StepSample(n, 0.0, 1e-2) for n in (1, 10, 100)],
    )
    found = fit(falling, "a test")
    assert found.text_token_s == 0.0 and found.attention_s == 0.0 and found.step_sequence_s == 0.0
    assert found.step_s == pytest.approx(1e-2, rel=1e-6)


def test_what_was_not_measured_stays_and_visual_tokens_keep_their_ratio() -> None:
    measured = samples(0.0, images=False)
    measured.transfers, measured.flips = [], []
    found, guess = fit(measured, "a test"), Costs()
    assert found.flip_s == guess.flip_s and found.bandwidth_bytes_s == guess.bandwidth_bytes_s
    assert found.visual_token_s / found.text_token_s == pytest.approx(guess.visual_token_s / guess.text_token_s)
    assert {name for name, _ in found.error} == {"prefill", "step"}


def test_steps_slower_than_usual_do_not_shrink_the_batch() -> None:
    slow = Samples(
        [PrefillSample(0, tokens, 1e-3 * tokens) for tokens in (10, 100, 1000)],
        [StepSample(n, 100.0 * n, 0.2 + 0.01 * n) for n in (1, 4, 16)],
        sizes={"max_sequences": 16},
    )
    assert fit(slow, "a test").batch(100) == 16


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(TooFewSamples, match="prompts"):
        fit(Samples([PrefillSample(0, 10, 1.0)]), "a test")
