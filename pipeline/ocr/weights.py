"""Which lines of a scanned page are bold: those whose strokes are thick for their font size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from pipeline.ocr.sizes import hard_to_read, is_ideographic
from pipeline.page_model import TextLine

BOLD = 1.15
"""How much thicker than the page's usual a bold stroke is: regular lines stay under 1.12, bold ones begin at
1.15 (measured on scans and on rendered pages)."""

SMALL = 0.8
"""Lines smaller than this share of the usual size seem bold, because a scanner blurs their strokes."""

MIN_LINES = 8
MIN_LETTERS = 4
"""Less text than this has no usual thickness."""


def with_weights(lines: Sequence[TextLine], strokes: Sequence[float]) -> list[TextLine]:
    """The lines with `bold` set, where the page says enough about it.

    Args:
        lines: with their final font sizes.
        strokes: of each line, the thickness of its strokes in points; 0 where it could not be measured.
    """
    print_like = [
        (line, stroke / line.font_size)
        for line, stroke in zip(lines, strokes, strict=True)
        if stroke and line.font_size and _letters(line.text) >= MIN_LETTERS and not is_ideographic(line.text)
    ]
    if hard_to_read(lines) or len(print_like) < MIN_LINES:
        return list(lines)
    usual = median(stroke for _, stroke in print_like)
    size = median(line.font_size for line, _ in print_like)
    weighed = {id(line): stroke >= BOLD * usual and line.font_size >= SMALL * size for line, stroke in print_like}
    return [replace(line, bold=weighed.get(id(line), False)) for line in lines]


def _letters(text: str) -> int:
    return sum(character.isalpha() for character in text)
