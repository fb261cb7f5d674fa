"""What one answer says so far: text, stop texts, loops, and why it ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.pools.detokenise import Decode, Detokeniser
from engine.pools.loops import LoopDetector
from engine.pools.messages import FinishReason, Sampling


@dataclass(frozen=True, slots=True)
class Piece:
    """What some tokens add. `finish_reason`: set if the answer ends with them."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None = None


class AnswerText:
    """Follows one answer from its first token on; the decode side replays what the prefill side has seen.

    Text that may be the beginning of a stop text is held back until it is known.

    Args:
        decode: ids to text.
        sampling: of the request.
        most: tokens after which it ends with LENGTH.
        ends: tokens that end the answer and are not part of it.
    """

    def __init__(self, decode: Decode, sampling: Sampling, most: int, ends: Collection[int] = ()) -> None:
        self._detokeniser = Detokeniser(decode)
        self._loops = LoopDetector() if sampling.repetition_stop else None
        self._stop = tuple(text for text in sampling.stop if text)
        self._most = most
        self._ends = frozenset() if sampling.ignore_eos else frozenset(ends)
        self._held = ""
        self.tokens = 0

    def push(self, token_ids: Sequence[int]) -> Piece:
        """Add tokens. What comes after the end of the answer is left out."""
        taken: list[int] = []
        said: list[str] = []
        reason: FinishReason | None = None
        for token_id in token_ids:
            if token_id in self._ends:
                reason = FinishReason.STOP
                break
            taken.append(token_id)
            self.tokens += 1
            text, reason = self._add(self._detokeniser.push(token_id))
            said.append(text)
            if reason is None and self._loops and self._loops.push(token_id):
                reason = FinishReason.REPETITION
            if reason is None and self.tokens >= self._most:
                reason = FinishReason.LENGTH
            if reason:
                break
        if reason:
            said.append(self._rest())
        return Piece(tuple(taken), "".join(said), reason)

    def _add(self, text: str) -> tuple[str, FinishReason | None]:
        if not self._stop:
            return text, None
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stop) if at >= 0]
        if found:
            said, self._held = self._held[: min(found)], ""
            # Nothing after a stop text belongs to the answer.
            self._detokeniser.flush()
            return said, FinishReason.STOP
        keep = max(_overlap(self._held, stop) for stop in self._stop)
        cut = len(self._held) - keep
        said, self._held = self._held[:cut], self._held[cut:]
        return said, None

    def _rest(self) -> str:
        rest, self._held = self._held + self._detokeniser.flush(), ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, and not all of it."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
