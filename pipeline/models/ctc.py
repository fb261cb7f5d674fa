"""From a recogniser's frame probabilities to characters, their places in the line, and spaces (CTC)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLANK = 0

MIN_ALTERNATIVE = 0.002
"""Probability from which a character counts as an alternative."""

SPACE_EVIDENCE = 0.15
"""A space that loses against the blank still counts if it reaches this probability between two characters:
recognisers are shy of spaces, and a lost one costs two words."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one crop says.

    Attributes:
        text: as read, with single spaces.
        score: mean probability of its characters, 0..1; 0 for empty text.
        centres: for each character of `text` that is not a space, the place of its middle along the
            crop, 0 (left edge) to 1 (right edge).
        spaces: for each of them the probability of a space before it; 0 for the first.
        alternatives: for each of them the characters that might stand there, with probabilities, the likeliest
            first and itself among them; empty if they were not asked for.
    """

    text: str
    score: float
    centres: tuple[float, ...]
    spaces: tuple[float, ...] = ()
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()


def decode(
    frames: NDArray[np.float32], characters: Sequence[str], used: float = 1.0, alternatives: bool = False
) -> Reading:
    """Best path of one line.

    Args:
        frames: time steps x classes, probabilities; class 0 is the blank, a class of `characters` is " ".
        characters: the text of each class.
        used: which part of the input's width the line fills; the rest is padding.
        alternatives: whether to give each character's alternatives too.
    """
    best = frames.argmax(axis=1)
    space = len(characters) - 1
    steps = max(1.0, len(best) * used)
    text: list[str] = []
    scores: list[float] = []
    centres: list[float] = []
    spaces: list[float] = []
    others: list[tuple[tuple[str, float], ...]] = []
    last_end = 0
    start = 0
    while start < len(best):
        end = start + 1
        while end < len(best) and best[end] == best[start]:
            end += 1
        label = int(best[start])
        if label != BLANK:
            run = frames[start:end, label]
            character = characters[label]
            if character.isspace():
                if text and text[-1] != " ":
                    text.append(" ")
            else:
                gap = frames[last_end:start, space]
                spaces.append(float(gap.max()) if centres and gap.size else 0.0)
                if centres and text[-1] != " " and spaces[-1] >= SPACE_EVIDENCE:
                    text.append(" ")
                text.append(character)
                scores.append(float(run.max()))
                centres.append(min(1.0, (start + end) / 2 / steps))
                if alternatives:
                    others.append(_alternatives(frames[start:end].max(axis=0), characters))
                last_end = end
        start = end
    score = sum(scores) / len(scores) if scores else 0.0
    return Reading("".join(text).strip(), score, tuple(centres), tuple(spaces), tuple(others))


def _alternatives(probabilities: NDArray[np.float32], characters: Sequence[str]) -> tuple[tuple[str, float], ...]:
    likely = [int(i) for i in (probabilities >= MIN_ALTERNATIVE).nonzero()[0] if i != BLANK]
    likely.sort(key=lambda i: -probabilities[i])
    return tuple((characters[i], float(probabilities[i])) for i in likely if not characters[i].isspace())
