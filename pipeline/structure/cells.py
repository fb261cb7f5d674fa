"""A grid of cells and the words that stand in it, to a table."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from pipeline.page_model import BBox, Table, TableGrid, TextLine, Word
from pipeline.structure.geometry import union

FITTING = 0.95
"""Share of a table's words that must stand inside the cells of a grid for it to be plausible."""

MAX_EMPTY = 0.6
"""Share of empty cells up to which a grid is plausible."""


def filled(structure: TableGrid, lines: Sequence[TextLine], fitting: float = FITTING) -> Table | None:
    """The table with its words in the cells that they stand in, or None if they do not fit the cells.

    Args:
        structure: its cells in points.
        lines: the text of the table, points.
        fitting: share of the words that must stand inside a cell.
    """
    words = [word for line in lines for word in line.words]
    contents: dict[int, list[Word]] = {}
    fit = 0
    for word in words:
        index = next((i for i, c in enumerate(structure.cells) if _holds(c.bbox, _middle(word.bbox))), None)
        if index is not None:
            fit += 1
        else:
            index = min(range(len(structure.cells)), key=lambda i: _distance(structure.cells[i].bbox, word.bbox))
        contents.setdefault(index, []).append(word)
    if fit < fitting * len(words) or len(contents) < (1 - MAX_EMPTY) * len(structure.cells):
        return None
    texts = [_cell_text(contents.get(i, [])) for i in range(len(structure.cells))]
    box = union([line.bbox for line in lines])
    return Table(box, _html(structure, texts))


def draws_rows(frame: TableGrid, lines: Sequence[TextLine]) -> bool:
    """Whether the frame draws the table's rows: not if cell after cell holds several rows side by side."""
    height = median(line.bbox[3] - line.bbox[1] for line in lines)
    shared = 0
    for row in range(frame.rows):
        counts = []
        for cell in frame.cells:
            if cell.row == row and cell.row_span == 1:
                centres = [_middle(line.bbox)[1] for line in lines if _holds(cell.bbox, _middle(line.bbox))]
                counts.append(_text_rows(centres, height))
        shared += sum(count > 2 for count in counts) >= 2
    return shared * 3 <= frame.rows


def hides_rows(frame: TableGrid, lines: Sequence[TextLine]) -> bool:
    """Whether a drawn row holds several rows of figures: rules under totals close to a frame by chance."""
    for row in range(frame.rows):
        stacks = [
            [line for line in lines if _holds(cell.bbox, _middle(line.bbox))]
            for cell in frame.cells
            if cell.row == row and cell.row_span == 1
        ]
        stacks = [stack for stack in stacks if len(stack) > 1]
        figures = [stack for stack in stacks if not any(c.isalpha() for line in stack for c in line.text)]
        if figures and len(stacks) > 1:
            return True
    return False


def leaves_labels(frame: TableGrid, lines: Sequence[TextLine]) -> bool:
    """Whether most rows of a frame go on to its left: then it is a part of a table, not the whole."""
    x0, y0 = min(c.bbox[0] for c in frame.cells), min(c.bbox[1] for c in frame.cells)
    x1, y1 = max(c.bbox[2] for c in frame.cells), max(c.bbox[3] for c in frame.cells)
    inside = [line for line in lines if _holds((x0, y0, x1, y1), _middle(line.bbox))]
    left = [line.bbox[3] for line in lines if line.bbox[2] <= x0 + 2]
    feet = {round(line.bbox[3]) for line in inside}
    continued = sum(any(abs(foot - other) < 1.5 for other in left) for foot in feet)
    return continued > 0.6 * len(feet)


def _middle(box: BBox) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _holds(box: BBox, point: tuple[float, float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _distance(cell: BBox, word: BBox) -> float:
    x, y = _middle(word)
    dx = max(cell[0] - x, 0.0, x - cell[2])
    dy = max(cell[1] - y, 0.0, y - cell[3])
    return dx * dx + dy * dy


def _cell_text(words: list[Word]) -> str:
    """The words of a cell in reading order; a line break is a space."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda w: _middle(w.bbox)[1]):
        last = rows[-1][-1] if rows else None
        if last and _middle(word.bbox)[1] - _middle(last.bbox)[1] < 0.6 * (last.bbox[3] - last.bbox[1]):
            rows[-1].append(word)
        else:
            rows.append([word])
    return " ".join(word.text for row in rows for word in sorted(row, key=lambda w: w.bbox[0]))


def _html(structure: TableGrid, texts: Sequence[str]) -> str:
    rows: list[list[str]] = [[] for _ in range(structure.rows)]
    for cell, text in zip(structure.cells, texts, strict=True):
        span = f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
        span += f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
        rows[cell.row].append(f"<td{span}>{html.escape(text, quote=False)}</td>")
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows) + "</table>"


def _text_rows(centres: Sequence[float], height: float) -> int:
    """How many rows of text stand at these vertical centres, `height` being that of a line."""
    ordered = sorted(centres)
    return sum(b - a > 0.6 * height for a, b in pairwise(ordered)) + bool(ordered)
