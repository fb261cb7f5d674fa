"""Measured samples into `Costs`: least squares on relative errors, no cost below zero."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import Any, TypeVar

import numpy as np

from engine.balancer.costs import Costs

S = TypeVar("S", bound=Hashable)

FEWEST_PREFILLS, FEWEST_STEPS = 3, 3
SPARE_STEP = 1.25
"""A step may take this many times as long as the longest one measured, where that is above the usual bound."""


class TooFewSamples(ValueError):
    """Not enough was measured for a fit; the message says of what."""

    code = "too_few_samples"


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """Seconds of one instance for one prompt of so many visual and text tokens."""

    visual: int
    text: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StepSample:
    """Seconds of one decode step over so many sequences, which read `kv_tokens` in all."""

    sequences: int
    kv_tokens: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TransferSample:
    """One request that a busy instance was asked to decode.

    Attributes:
        nbytes: of KV that was pulled, in `pull_s`.
        seconds: until the instance's steps had the sequence.
    """

    nbytes: int
    pull_s: float
    seconds: float


@dataclass(slots=True)
class Samples:
    """What a calibration measured.

    Attributes:
        fronts: seconds from asking for a prompt to its answer, less those that the instance was busy with it.
        flips: seconds of changes of role of an idle instance.
        link_bytes_s: bytes a second of the link as instances measured it when they greeted; 0 if unknown.
        sizes: fields of `Costs` that instances tell of themselves (slots, KV capacity, bytes a token, tokens of a
            prefill pass).
    """

    prefills: list[PrefillSample] = field(default_factory=list)
    steps: list[StepSample] = field(default_factory=list)
    transfers: list[TransferSample] = field(default_factory=list)
    fronts: list[float] = field(default_factory=list)
    flips: list[float] = field(default_factory=list)
    link_bytes_s: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)


def fit(samples: Samples, source: str, base: Costs | None = None) -> Costs:
    """The costs that explain the samples best.

    Of samples of one size the median counts, so that a pause of the machine does not. What was not measured stays as
    in `base`; a visual token then keeps its ratio to a text token.

    Args:
        samples: in any order.
        source: where they are from; it becomes part of the costs.
        base: the guess by default.

    Raises:
        TooFewSamples: fewer than three sizes of prompts, or of decode batches.
    """
    base = base or Costs()
    prefill, prefill_error = _prefill(samples.prefills, base)
    step, step_error = _step(samples.steps)
    errors = [("prefill", prefill_error), ("step", step_error)]
    found: dict[str, Any] = {**prefill, **step, **samples.sizes, "source": source}
    if samples.transfers or samples.link_bytes_s:
        moved, error = _transfer(samples, base)
        found |= moved
        errors += [("transfer", error)] if error is not None else []
    if samples.fronts:
        # The least: whatever else the machine does is not the request's.
        found["front_s"] = max(0.0, min(samples.fronts))
    if samples.flips:
        found["flip_s"] = median(samples.flips)
        errors.append(("flip", _rms([seconds / found["flip_s"] - 1 for seconds in samples.flips])))
    slowest = SPARE_STEP * max(sample.seconds for sample in samples.steps)
    found["tpot_bound_s"] = max(base.tpot_bound_s, slowest)
    found["error"] = tuple((name, round(error, 4)) for name, error in errors)
    return replace(base, **found)


def _prefill(samples: Sequence[PrefillSample], base: Costs) -> tuple[dict[str, float], float]:
    points = _medians(((s.visual, s.text), s.seconds) for s in samples)
    if len(points) < FEWEST_PREFILLS:
        raise TooFewSamples(f"{len(points)} sizes of prompts were measured, at least {FEWEST_PREFILLS} are needed")
    with_images = any(visual for (visual, _), _ in points)
    rows = [[1.0, text, (visual + text) ** 2, *([visual] if with_images else [])] for (visual, text), _ in points]
    found, error = _least_squares(rows, [seconds for _, seconds in points])
    per_text = found[1]
    return {
        "prefill_request_s": found[0],
        "text_token_s": per_text,
        "attention_s": found[2],
        "visual_token_s": found[3] if with_images else per_text * base.visual_token_s / base.text_token_s,
    }, error


def _step(samples: Sequence[StepSample]) -> tuple[dict[str, float], float]:
    if len({(s.sequences, round(s.kv_tokens, -1)) for s in samples}) < FEWEST_STEPS:
        raise TooFewSamples(f"fewer than {FEWEST_STEPS} sizes of decode batches were measured")
    rows = [[1.0, s.kv_tokens, s.sequences] for s in samples]
    found, error = _least_squares(rows, [s.seconds for s in samples])
    return {"step_s": found[0], "step_kv_token_s": found[1], "step_sequence_s": found[2]}, error


def _transfer(samples: Samples, base: Costs) -> tuple[dict[str, float], float | None]:
    """Bandwidth from the pulls alone, latency from all that a request waits for besides. Where KV is too small to tell,
    the bandwidth is what the link showed at its greeting.
    """
    link = samples.link_bytes_s or base.bandwidth_bytes_s
    points = _medians((s.nbytes, s.pull_s) for s in samples.transfers)
    if len(points) < 2:
        return {"bandwidth_bytes_s": link}, None
    found, error = _least_squares([[1.0, float(nbytes)] for nbytes, _ in points], [seconds for _, seconds in points])
    bandwidth = 1 / found[1] if found[1] > 0 else link
    latency = median(s.seconds - s.nbytes / bandwidth for s in samples.transfers)
    return {"transfer_latency_s": max(0.0, latency), "bandwidth_bytes_s": bandwidth}, error


def _medians(samples: Iterable[tuple[S, float]]) -> list[tuple[S, float]]:
    by_size: dict[S, list[float]] = {}
    for size, seconds in samples:
        by_size.setdefault(size, []).append(seconds)
    return [(size, median(seconds)) for size, seconds in by_size.items()]


def _least_squares(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[list[float], float]:
    """Coefficients of at least 0 with the least sum of squared relative errors, and the root of its mean.

    With four of them at most, every choice of those that are zero is tried: exact, and short.
    """
    weights = 1 / np.maximum(np.asarray(seconds), 1e-9)
    matrix = np.asarray(rows) * weights[:, None]
    # Columns of like size, or a token's squared length would drown the rest in rounding.
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    count = matrix.shape[1]
    best, least = np.zeros(count), math.inf
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            part = (matrix / scale)[:, chosen]
            found, *_ = np.linalg.lstsq(part, np.ones(len(seconds)), rcond=None)
            if (found < 0).any():
                continue
            error = float(((part @ found - 1) ** 2).mean())
            if error < least - 1e-12:
                least = error
                best = np.zeros(count)
                best[list(chosen)] = found
    return [float(value) for value in best / scale], math.sqrt(least)


def _rms(errors: Sequence[float]) -> float:
    return math.sqrt(mean(error * error for error in errors))
