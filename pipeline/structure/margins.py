"""Notes in the margin of a column: short lines beside its text that are no part of it."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.page_model import TextLine
from pipeline.structure.geometry import body_size, same_row

MIN_ROWS = 4
"""Rows of a column from which it has an edge that notes can stand outside of."""

MAX_SHARE = 0.2
"""Share of the rows that may have a note; more of them are labels, which belong to their rows."""

_WIDTH = 6.0
_GAP = 0.3
"""Font sizes: widest note, least white between it and the text."""


def split_margin_notes(lines: Sequence[TextLine]) -> tuple[list[TextLine], list[TextLine]]:
    """Tell the lines of a column from the notes left and right of it; both keep their order."""
    size = body_size(lines)
    wide = [line for line in lines if line.bbox[2] - line.bbox[0] > 2 * _WIDTH * size]
    if len(wide) < MIN_ROWS:
        return list(lines), []
    # The text's edges: an indented first line, a short last one or a note do not move them.
    left, right = sorted(w.bbox[0] for w in wide)[0], sorted(w.bbox[2] for w in wide)[-1]
    notes = [line for line in lines if _is_note(line, lines, left, right, size)]
    if not notes or len(notes) > max(1.0, MAX_SHARE * len(wide)):
        return list(lines), []
    return [line for line in lines if not any(line is note for note in notes)], notes


def _is_note(line: TextLine, lines: Sequence[TextLine], left: float, right: float, size: float) -> bool:
    if line.bbox[2] - line.bbox[0] > _WIDTH * size:
        return False
    if line.bbox[2] > left - _GAP * size and line.bbox[0] < right + _GAP * size:
        return False
    return any(same_row(line.bbox, other.bbox) for other in lines if other is not line)
