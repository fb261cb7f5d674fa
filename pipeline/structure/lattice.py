"""The grid of a table that is drawn with a full frame: cells and spans from its rules."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.page_model import BBox, TableCell, TableGrid
from pipeline.structure.geometry import union

NEAR = 3.0
"""Points; rules closer than this are one, drawn cell by cell."""

WALL = 0.7
"""Share of a cell's edge that must be drawn for it to be a wall."""


MAX_RULES = 600
"""Rules up to which frames are looked for; a page with more is a drawing or graph paper."""


def find_frames(horizontal: Sequence[BBox], vertical: Sequence[BBox]) -> list[TableGrid]:
    """The grids that a page's rules (points) draw by themselves: rules that touch, closed to cells."""
    rules = [*horizontal, *vertical]
    if len(rules) > MAX_RULES:
        return []
    found = (lattice(box, horizontal, vertical) for box in _touching(rules) if box[2] > box[0] and box[3] > box[1])
    return [grid for grid in found if grid is not None and grid.rows * grid.columns > 2]


def bounds(grid: TableGrid) -> BBox:
    """The outline of a grid."""
    return union(cell.bbox for cell in grid.cells)


def _touching(rules: Sequence[BBox]) -> list[BBox]:
    """The outlines of the groups of rules that touch each other."""
    groups: list[BBox] = []
    for rule in rules:
        box = (rule[0] - NEAR, rule[1] - NEAR, rule[2] + NEAR, rule[3] + NEAR)
        while True:
            met = [g for g in groups if g[0] <= box[2] and g[2] >= box[0] and g[1] <= box[3] and g[3] >= box[1]]
            if not met:
                break
            groups = [g for g in groups if g not in met]
            box = union([box, *met])
        groups.append(box)
    return groups


def lattice(bbox: BBox, horizontal: Sequence[BBox], vertical: Sequence[BBox]) -> TableGrid | None:
    """The grid that the rules inside `bbox` (points) draw, or None if they do not close into one.

    Args:
        bbox: where the table's text stands, points.
        horizontal, vertical: boxes of the page's rules, points.
    """
    frame = _grown(bbox, [*horizontal, *vertical])
    horizontal = [r for r in horizontal if _inside(r, frame)]
    vertical = [r for r in vertical if _inside(r, frame)]
    ys = _positions([(r[1] + r[3]) / 2 for r in horizontal])
    xs = _positions([(r[0] + r[2]) / 2 for r in vertical])
    if len(xs) < 3 or len(ys) < 3:
        return None
    rows, columns = len(ys) - 1, len(xs) - 1

    def drawn_below(row: int, column: int) -> bool:
        """Whether the cell at (row, column) has a wall at its foot."""
        return _covered(horizontal, ys[row + 1], xs[column], xs[column + 1], level=True) >= WALL

    def drawn_right(row: int, column: int) -> bool:
        return _covered(vertical, xs[column + 1], ys[row], ys[row + 1], level=False) >= WALL

    outline = [_covered(horizontal, y, xs[0], xs[-1], level=True) for y in (ys[0], ys[-1])]
    outline += [_covered(vertical, x, ys[0], ys[-1], level=False) for x in (xs[0], xs[-1])]
    if min(outline) < WALL:
        return None
    cells: list[TableCell] = []
    owner: dict[tuple[int, int], int] = {}
    for row in range(rows):
        for column in range(columns):
            if (row, column) in owner:
                continue
            wide = 1
            while column + wide < columns and not drawn_right(row, column + wide - 1):
                wide += 1
            high = 1
            while row + high < rows and not any(drawn_below(row + high - 1, column + k) for k in range(wide)):
                high += 1
            places = [(row + i, column + k) for i in range(high) for k in range(wide)]
            if any(place in owner for place in places):
                return None
            owner.update(dict.fromkeys(places, len(cells)))
            box = (xs[column], ys[row], xs[column + wide], ys[row + high])
            cells.append(TableCell(row, column, high, wide, box))
    return TableGrid(rows, columns, tuple(cells), 1.0)


def _grown(bbox: BBox, rules: Sequence[BBox]) -> BBox:
    """The box with the rules that run through it: a frame is wider than the text in it."""
    margin = 2 * NEAR
    for _ in range(2):  # the rules along the text, then those that close them
        x0, y0, x1, y1 = bbox[0] - margin, bbox[1] - margin, bbox[2] + margin, bbox[3] + margin
        bbox = union([bbox, *(r for r in rules if r[0] <= x1 and r[2] >= x0 and r[1] <= y1 and r[3] >= y0)])
    return bbox


def _inside(rule: BBox, bbox: BBox) -> bool:
    x, y = (rule[0] + rule[2]) / 2, (rule[1] + rule[3]) / 2
    margin = 2 * NEAR
    return bbox[0] - margin <= x <= bbox[2] + margin and bbox[1] - margin <= y <= bbox[3] + margin


def _positions(values: Sequence[float]) -> list[float]:
    """Each group of near values as its mean, ascending."""
    groups: list[list[float]] = []
    for value in sorted(values):
        if groups and value - groups[-1][-1] <= NEAR:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [sum(group) / len(group) for group in groups]


def _covered(rules: Sequence[BBox], at: float, start: float, end: float, level: bool) -> float:
    """Which share of the stretch from start to end the rules at one position draw."""
    spans = []
    for x0, y0, x1, y1 in rules:
        position = (y0 + y1) / 2 if level else (x0 + x1) / 2
        low, high = (x0, x1) if level else (y0, y1)
        if abs(position - at) <= NEAR and high > start and low < end:
            spans.append((max(low, start), min(high, end)))
    total = 0.0
    reach = start
    for low, high in sorted(spans):
        total += max(0.0, high - max(low, reach))
        reach = max(reach, high)
    return total / max(1e-6, end - start)
