"""Noticing that a text has become a loop: greedy decoding of a small model never leaves one by itself."""

from __future__ import annotations

import numpy as np

LONGEST_PERIOD = 64
LOOP_TOKENS = 256
"""So many tokens that repeat with one period are a loop. Long enough for rows of empty cells in a real table."""


class LoopDetector:
    """Whether the last `LOOP_TOKENS` tokens are one piece of at most `LONGEST_PERIOD` tokens over and over.

    For each period it counts for how many tokens the text has equalled itself that far back; one token costs
    `LONGEST_PERIOD` comparisons.
    """

    def __init__(self) -> None:
        self._recent = np.full(LONGEST_PERIOD, -1, np.int64)
        self._equal = np.zeros(LONGEST_PERIOD, np.int64)
        self._periods = np.arange(LONGEST_PERIOD, 0, -1)

    def push(self, token_id: int) -> bool:
        """True if the text, with this token, ends in a loop."""
        self._equal = np.where(self._recent == token_id, self._equal + 1, 0)
        self._recent = np.append(self._recent[1:], token_id)
        return bool((self._equal + self._periods >= LOOP_TOKENS).any())
