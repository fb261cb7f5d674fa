"""A real inference of a few tokens, again and again: an engine that answers wrong is ill, whatever its process says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from engine.pools.engine_thread import EngineThread
from engine.pools.messages import Health, Sampling
from engine.pools.prompt import Prompt
from engine.pools.sampling import generation_config
from engine.pools.sequence import Job

TOKENS = 6
FEWEST_TOKENS = 2
"""The first is of the prompt's step, the second of a decode step: with fewer, one of the two would not be asked."""
PROMPT_TOKENS = 12
INTERVALS = 3
"""So many intervals old, and an answer says nothing about now."""


@dataclass(slots=True)
class Canary:
    """Asks one question and remembers what the model answered at the start.

    Args:
        interval_s: from one question to the next.
        vocabulary: of the model.
    """

    engine: EngineThread
    vocabulary: int
    interval_s: float
    expected: tuple[int, ...] | None = None
    _ended: float = field(default_factory=time.monotonic)
    _seconds: float = 0.0
    _failure: str = "no canary has answered yet"

    async def ask(self, tokens: int = TOKENS) -> bool:
        """Ask once. True if the answer was right; the first one is, and must be whole.

        Args:
            tokens: of the answer that are waited for and compared, from `FEWEST_TOKENS` to `TOKENS`.
        """
        started = time.monotonic()
        try:
            answer = await self._answer(tokens)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, it is the answer's being wrong
            self._failure = f"the canary failed: {error}"
        else:
            if self.expected is None:
                self.expected = answer
            right = self.expected[:tokens]
            self._failure = "" if answer == right else f"the canary answered {answer}, not {right}"
        self._ended = time.monotonic()
        self._seconds = self._ended - started
        return not self._failure

    def health(self) -> Health:
        age = time.monotonic() - self._ended
        late = age > INTERVALS * self.interval_s
        reason = self._failure or (f"the last canary is {age:.0f} seconds old" if late else "")
        return Health(ok=not reason, reason=reason, age_s=age, seconds=self._seconds)

    async def _answer(self, tokens: int) -> tuple[int, ...]:
        ids = tuple((7 * at + 3) % min(self.vocabulary, 256) for at in range(PROMPT_TOKENS))
        sampling = Sampling(max_tokens=tokens, ignore_eos=True)
        config = generation_config(sampling, prompt_tokens=len(ids), most=tokens, stop_token_ids=())
        running = self.engine.submit(Job(Prompt(ids), config))
        found: list[int] = []
        try:
            while True:
                step = await running.next()
                found += step.token_ids
                if step.finished:
                    return tuple(found)
        finally:
            running.cancel()
