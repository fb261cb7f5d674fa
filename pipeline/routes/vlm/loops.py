"""Text that has begun to repeat itself: models of this kind do, and then never end by themselves."""

from __future__ import annotations

import re

_TAIL = 2400
"""Characters looked at."""

_LONGEST_UNIT = 240
_FEWEST_REPEATS = 6
_PROSE_CHARS = 240
"""Characters that a loop of words fills at least; less may be a refrain or a list of equal entries."""

_MARKS_CHARS = 1200
"""The same for what repeats in good texts too: leaders of dots, cells without content."""

_TAG = re.compile(r"<\|?/?\w+\|?>")
_SAYS_SOMETHING = re.compile(r"[^\W_]")


def has_looped(text: str) -> bool:
    """Whether the end of `text` is one stretch over and over.

    A stretch that repeats is found by looking back for the last characters, which costs little, so that a text can
    be asked again and again while it grows.
    """
    tail = text[-_TAIL:]
    if len(tail) < _PROSE_CHARS:
        return False
    for unit in _units(tail):
        size = len(unit)
        repeats = 1
        while (repeats + 1) * size <= len(tail) and tail.endswith(unit * (repeats + 1)):
            repeats += 1
        # A column of zeros repeats itself with good reason.
        words = bool(_SAYS_SOMETHING.search(unit)) and not _TAG.search(unit)
        if repeats >= _FEWEST_REPEATS and repeats * size >= (_PROSE_CHARS if words else _MARKS_CHARS):
            return True
    return False


def _units(tail: str) -> list[str]:
    """Candidates, shortest first: from an earlier place of the last characters to the end."""
    end = tail[-8:]
    found: list[str] = []
    at = len(tail) - len(end)
    while len(found) < 8:
        at = tail.rfind(end, 0, at + len(end) - 1)
        if at < 0 or len(tail) - at - len(end) > _LONGEST_UNIT:
            break
        found.append(tail[at + len(end) :])
    return found
