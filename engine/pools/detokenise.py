"""Tokens into text, as they come: a character whose bytes are split over tokens comes with its last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
LONGEST_WAIT = 8
"""Tokens. No character has more bytes than four; what is still unreadable then is not text."""


class Detokeniser:
    """Incremental decoding; all texts together are the decoding of all tokens.

    Tokens are decoded together with those before them back to the last boundary but one, because a decoder may write
    a token differently at the beginning of a text (the method of vLLM and TGI).

    Args:
        decode: ids to text, without any clean-up that depends on neighbours.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._before = 0
        self._done = 0

    def push(self, token_id: int) -> str:
        """The text that one more token adds; empty while a character is unfinished."""
        self._ids.append(token_id)
        waiting = len(self._ids) - self._done
        text = self._decode(self._ids[self._before :])
        if text.endswith(UNFINISHED) and waiting < LONGEST_WAIT:
            return ""
        return self._take(text)

    def flush(self) -> str:
        """What is left when no more tokens come."""
        if self._done == len(self._ids):
            return ""
        return self._take(self._decode(self._ids[self._before :]))

    def _take(self, text: str) -> str:
        known = self._decode(self._ids[self._before : self._done])
        # Only the last stretch is ever decoded again, so older ids need not be kept.
        self._ids = self._ids[self._done :]
        self._before, self._done = 0, len(self._ids)
        return text[len(known) :]
