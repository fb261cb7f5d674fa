"""Font sizes of scanned lines, from the height of their letters' bodies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from pipeline.page_model import TextLine

X_HEIGHT = 0.48
CAP_HEIGHT = 0.70
IDEOGRAPH = 0.88
ASCENT = 0.76
DESCENT = 0.22
"""Typical proportions of type, in ems."""

NARROWEST = 0.38
WIDEST = 0.68
"""The usual distance between Latin characters, in ems, of condensed and of wide faces."""

_ASCENDING = frozenset("bdfhkl")

HARMONY = 0.12
"""Sizes of print that differ by less than this share are one size, measured twice."""

MEASURED_LENGTH = 16
WIDTH_HARMONY = 0.1
CAPITAL = 1.35
"""On lines this long the width per character tells sizes apart, and makes them equal if it differs by less; a
capital counts as that many small letters."""

HANDWRITING = 0.94
"""Pages read with less mean confidence than this are written by hand, or as hard to read as that."""


def is_ideographic(text: str) -> bool:
    """Whether most of a line is Chinese, Japanese or Korean."""
    characters = [c for c in text if c.isalnum()]
    ideographs = sum("\u2e80" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7ff" for c in characters)
    return 2 * ideographs >= len(characters) > 0


def em(text: str, body: float, pitch: float) -> float:
    """The font size of a line, in the unit of `body`.

    Args:
        text: what the line says.
        body: height of its letters' bodies.
        pitch: usual distance from one character to the next. It keeps the size within what type can be: an
            initial or a slanted crop makes the body of a line too high.
    """
    characters = [c for c in text if c.isalnum()]
    if is_ideographic(text):
        return _within(body / IDEOGRAPH, 0.6 * pitch, 1.2 * pitch, len(characters))
    tall = sum(not c.islower() or c in _ASCENDING for c in characters)
    size = body / (CAP_HEIGHT if tall > 0.6 * len(characters) else X_HEIGHT)
    return _within(size, pitch / WIDEST, pitch / NARROWEST, len(characters))


def _within(size: float, low: float, high: float, characters: int) -> float:
    return min(max(size, low), high) if characters >= 8 else size


def harmonised(lines: Sequence[TextLine]) -> list[TextLine]:
    """The lines with nearly equal font sizes made equal, so that one paragraph has one size.

    A page that is hard to read gets one size: nobody writes all lines equally large.
    """
    tolerance = math.inf if hard_to_read(lines) else HARMONY
    left = sorted(range(len(lines)), key=lambda i: lines[i].font_size)
    sizes: dict[int, float] = {}
    while left:
        # The commonest size first: it takes in what is near it, and the rest goes on among itself.
        common = _heaviest([(lines[i].font_size, len(lines[i].text)) for i in left])
        near = [i for i in left if abs(lines[i].font_size - common) <= tolerance * max(common, 1e-6)]
        sizes.update(dict.fromkeys(near, common))
        left = [i for i in left if i not in sizes]
    sized = [replace(line, font_size=round(sizes[i], 2)) for i, line in enumerate(lines)]
    return _agreeing_with_width(sized)


def _agreeing_with_width(lines: list[TextLine]) -> list[TextLine]:
    """Give the common size to lines that are as wide for their characters as the common ones.

    An initial, a slant or many capitals make a line look higher than it is set, not wider.
    """
    measured = [line for line in lines if _is_measured(line)]
    if not measured:
        return lines
    common = _heaviest([(line.font_size, len(line.text)) for line in measured])
    usual = median(_width(line) for line in measured if line.font_size == common)
    return [
        replace(line, font_size=common)
        if _is_measured(line) and abs(_width(line) - usual) <= WIDTH_HARMONY * usual
        else line
        for line in lines
    ]


def _is_measured(line: TextLine) -> bool:
    level = line.bbox[2] - line.bbox[0] > line.bbox[3] - line.bbox[1]
    return level and len(line.text) >= MEASURED_LENGTH and not is_ideographic(line.text)


def _width(line: TextLine) -> float:
    """Points per small letter."""
    return (line.bbox[2] - line.bbox[0]) / sum(CAPITAL if c.isupper() else 1.0 for c in line.text)


def hard_to_read(lines: Sequence[TextLine]) -> bool:
    """Whether the page is handwriting, or as hard to read as that."""
    return is_hard((line.text, line.score) for line in lines)


def is_hard(readings: Iterable[tuple[str, float]]) -> bool:
    """The same for texts with their scores."""
    pairs = list(readings)
    return sum(score * len(text) for text, score in pairs) < HANDWRITING * sum(len(text) for text, _ in pairs)


def _heaviest(sizes: Sequence[tuple[float, int]]) -> float:
    """The median size over characters."""
    total = sum(weight for _, weight in sizes)
    seen = 0
    for size, weight in sorted(sizes):
        seen += weight
        if 2 * seen >= total:
            return size
    return sizes[-1][0]
