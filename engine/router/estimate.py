"""How large a request is before any instance has seen it, corrected by what instances then say."""

from __future__ import annotations

import math

from engine.balancer.costs import Costs
from engine.balancer.load import Load, load_of
from engine.balancer.output_length import UNKNOWN, OutputLength

PIXELS = 28
"""Side of the square that one visual token stands for."""

TOKENS_PER_BYTE = 0.3
"""Of text, until instances have told."""

LEARN = 0.1
"""Weight of one new observation."""

EVERY = "any, at most 2^{}"
"""The task of requests, to the predictor of lengths: the router does not know tasks, but what senders allow shows what
they expect. A page of tables gets more than one of prose."""


class Pace:
    """How many times as long things take as predicted, as a geometric mean weighted to the recent past."""

    def __init__(self) -> None:
        self._log: float | None = None

    @property
    def value(self) -> float:
        return 1.0 if self._log is None else math.exp(self._log)

    def learn(self, predicted: float, seconds: float) -> None:
        if predicted > 0 and seconds > 0:
            shown = math.log(seconds / predicted)
            self._log = shown if self._log is None else self._log + LEARN * (shown - self._log)


class Estimate:
    """What arrives is measured in bytes and pixels, what it costs in tokens and seconds."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._tokens_per_byte = TOKENS_PER_BYTE
        self._outputs = OutputLength()
        self._prefill_pace = Pace()
        self._step_pace = Pace()
        self.mean_output = UNKNOWN

    def text_tokens(self, nbytes: int) -> int:
        """Tokens of so many bytes of text."""
        return math.ceil(nbytes * self._tokens_per_byte)

    def output(self, prompt: int, most: int) -> float:
        """Tokens that will be generated, `most` at most."""
        return max(1.0, min(float(most), self._outputs.predict(EVERY.format(most.bit_length()), prompt)))

    def load(self, visual: int, text: int, output: float, hit: float = 0.0) -> Load:
        """In the balancer's currency."""
        return load_of(visual, text, output, hit)

    def prefill_s(self, load: Load) -> float:
        """Seconds of prefill, at the pace that instances have shown."""
        return self.costs.prefill_s(load) * self.prefill_pace

    @property
    def prefill_pace(self) -> float:
        """Seconds of prefill that instances need for each one that the costs say."""
        return self._prefill_pace.value

    @property
    def step_pace(self) -> float:
        """The same for decode steps."""
        return self._step_pace.value

    def learn_prompt(self, text_bytes: int, text_tokens: int) -> None:
        """An instance counted the tokens."""
        if text_bytes > 0 and text_tokens > 0:
            self._tokens_per_byte += LEARN * (text_tokens / text_bytes - self._tokens_per_byte)

    def learn_prefill(self, load: Load, seconds: float) -> None:
        """A prefill took so long."""
        self._prefill_pace.learn(self.costs.prefill_s(load), seconds)

    def learn_step(self, sequences: int, kv_tokens: float, seconds: float) -> None:
        """Tokens of an answer came so far apart, in a batch of so many sequences that read so much KV."""
        self._step_pace.learn(self.costs.step(sequences, kv_tokens), seconds)

    def learn_output(self, prompt: int, tokens: int, most: int) -> None:
        """An answer ended by itself after so many tokens, of `most` at most."""
        self._outputs.learn(EVERY.format(most.bit_length()), prompt, tokens)
        self.mean_output += LEARN * (tokens - self.mean_output)


def visual_tokens(width: int, height: int) -> int:
    """Tokens of an image of so many pixels."""
    return max(1, round(width / PIXELS)) * max(1, round(height / PIXELS))
