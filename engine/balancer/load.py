"""What requests ask of a pool, as sums that add up: the currency of monitor, predictor, planner and costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Load(NamedTuple):
    """Sums over requests; per second where it is a rate. Linear, so that backlog and forecast add up.

    A tuple, because one is made for every request.

    Attributes:
        requests: how many.
        visual: visual tokens to prefill (28x28 pixels each), prefix hits taken off.
        text: text tokens to prefill, prefix hits taken off.
        squares: sum of (prompt length)^2, for attention.
        output: tokens to generate.
        output_context: sum of output * (prompt + output / 2). Over `output` it is the context of the average
            token generated, which is what a decode step reads: long outputs sit in the batch longest, so the
            mean over requests would be too small (size bias).
        kv_tokens: tokens whose KV moves from prefill to decode: the whole prompt, hits included.
    """

    requests: float = 0.0
    visual: float = 0.0
    text: float = 0.0
    squares: float = 0.0
    output: float = 0.0
    output_context: float = 0.0
    kv_tokens: float = 0.0

    def plus(self, other: Load) -> Load:
        """Both together."""
        return Load(
            self.requests + other.requests,
            self.visual + other.visual,
            self.text + other.text,
            self.squares + other.squares,
            self.output + other.output,
            self.output_context + other.output_context,
            self.kv_tokens + other.kv_tokens,
        )

    def scaled(self, prefill: float, decode: float | None = None) -> Load:
        """Every sum times `prefill`; the sums of decode times `decode` if that differs."""
        out = prefill if decode is None else decode
        return Load(
            self.requests * prefill,
            self.visual * prefill,
            self.text * prefill,
            self.squares * prefill,
            self.output * out,
            self.output_context * out,
            self.kv_tokens * prefill,
        )

    @property
    def context(self) -> float:
        """KV tokens that the average generated token reads; 0 without output."""
        return self.output_context / self.output if self.output > 0 else 0.0


NOTHING = Load()


def total(loads: Iterable[Load]) -> Load:
    """All of `loads` together."""
    return Load(*map(sum, zip(NOTHING, *loads, strict=True)))


def load_of(visual: float, text: float, output: float, hit: float = 0.0) -> Load:
    """The load of one request.

    Args:
        visual: visual tokens of the prompt.
        text: text tokens of the prompt.
        output: tokens to generate, predicted or known.
        hit: share of the prompt, 0 to 1, whose KV is there already.
    """
    prompt = visual + text
    fresh = 1.0 - min(1.0, max(0.0, hit))
    return Load(
        1.0,
        visual * fresh,
        text * fresh,
        prompt * prompt * fresh,
        output,
        output * (prompt + output / 2),
        prompt,
    )
