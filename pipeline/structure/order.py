"""Reading order: a page is cut along its white space into columns, again and again (recursive XY-cut).

Two rules make the classic cut hold on irregular pages. Bands of the page belong together as long as one
gutter runs through all of them, so a page may change its columns on the way down. And columns whose rows
start with headings side by side are cards: they are read row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.page_model import BBox
from pipeline.structure.geometry import gaps, same_row, union

GUTTER = 0.75
"""Least width of a gutter in line heights."""

BAND_GAP = 2.2
"""White space, in line heights, that ends a column which has nothing beside it."""

LABEL = 8
"""Width, in line heights, up to which a column beside text may hold nothing but labels."""

MAX_PAIRS = 100_000
"""Pairs of pieces compared; columns with more hold no labels."""

MIN_COLUMN_ROWS = 2
"""A column has at least that many rows; less is a gap within a line."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to be ordered: a piece of a line, or a whole table or picture.

    Attributes:
        index: the caller's number.
        heading: the piece looks like a heading (bold, or larger than the body).
        atomic: True for tables and pictures, which count as a column of any height.
        fills: width of the text compared with its column does not matter (tables and pictures).
    """

    index: int
    bbox: BBox
    heading: bool = False
    atomic: bool = False


def reading_order(items: Sequence[Item], height: float) -> list[list[int]]:
    """Order `items` as a person reads them.

    Args:
        items: anything with a box; a slanted or empty box is the caller's problem.
        height: the usual height of a line, in the unit of the boxes.

    Returns:
        The items' numbers, grouped by the column they stand in, columns in reading order; within a column
        row by row from the top, each row from the left.
    """
    if not items:
        return []
    return [[item.index for item in column] for column in _cut(list(items), height)]


def _cut(items: list[Item], height: float) -> list[list[Item]]:
    if len(items) < 2:
        return [items]
    columns = _columns(items, height)
    if columns:
        rows = _card_rows(columns, height)
        if rows:
            return [column for row in rows for column in _cut(row, height)]
        return [leaf for column in columns for leaf in _cut(column, height)]
    groups = _column_groups(items, height)
    if len(groups) == 1:
        return [_rows(items)]
    leaves: list[list[Item]] = []
    for group in groups:
        parts = _cut(group, height) if _columns(group, height) else [_rows(group)]
        if leaves and len(parts) == 1 and not _columns(group, height) and _same_column(leaves[-1], parts[0]):
            leaves[-1] = leaves[-1] + parts[0]
        else:
            leaves.extend(parts)
    return leaves


def _columns(items: list[Item], height: float) -> list[list[Item]]:
    """The items split at every gutter that runs through all of them; [] where there is none."""
    parts: list[list[Item]] = [items]
    for left, right in gaps(((i.bbox[0], i.bbox[2]) for i in items), GUTTER * height):
        middle = (left + right) / 2
        tail = [i for i in parts[-1] if i.bbox[0] >= middle]
        head = [i for i in parts[-1] if i.bbox[0] < middle]
        parts[-1:] = [head, tail]
    merged: list[list[Item]] = []
    for part in parts:
        # A sliver (bullets, line numbers, a lone mark) belongs to the text that it stands beside.
        if merged and (not _is_column(merged[-1], height) or not _is_column(part, height)):
            merged[-1] = merged[-1] + part
        else:
            merged.append(part)
    if len(merged) < 2 or _reads_across(merged, height):
        return []
    return merged


def _is_column(items: list[Item], height: float) -> bool:
    if any(i.atomic for i in items):
        return True
    box = union(i.bbox for i in items)
    return _row_count(items) >= MIN_COLUMN_ROWS and box[2] - box[0] >= 3 * height


def _row_count(items: Sequence[Item]) -> int:
    count, reach = 0, float("-inf")
    for item in sorted(items, key=lambda i: i.bbox[1]):
        middle = (item.bbox[1] + item.bbox[3]) / 2
        if middle > reach:
            count += 1
            reach = item.bbox[3]
    return count


def _reads_across(columns: list[list[Item]], height: float) -> bool:
    """Whether the first column holds labels of what stands right of it, row for row."""
    first, rest = columns[0], [i for column in columns[1:] for i in column]
    if any(i.atomic for i in (*first, *rest)):
        return False
    width = union(i.bbox for i in first)
    others = union(i.bbox for i in rest)
    label_width = width[2] - width[0]
    if label_width > 0.5 * (others[2] - others[0]):
        return False
    if len(first) * len(rest) > MAX_PAIRS:
        return False
    partnered = sum(any(same_row(i.bbox, j.bbox) and abs(i.bbox[3] - j.bbox[3]) < 2 for j in rest) for i in first)
    rows_first, rows_rest = _row_count(first), _row_count(rest)
    if partnered < len(first) or rows_first > rows_rest:
        return False
    # Short labels (numbers, keys of a bibliography) may each have a whole paragraph beside them.
    return rows_first * 2 >= rows_rest or label_width < LABEL * height


def _card_rows(columns: list[list[Item]], height: float) -> list[list[Item]] | None:
    """The rows of a grid of cards: each cell of each row begins with a heading, at one height."""
    everything = [i for column in columns for i in column]
    cuts = gaps(((i.bbox[1], i.bbox[3]) for i in everything), 0.8 * height)
    if not cuts:
        return None
    cells = [[i for i in column] for column in columns]

    def heads(low: float, high: float) -> list[Item]:
        return [
            min(inside, key=lambda i: i.bbox[1])
            for inside in ([i for i in cell if low <= i.bbox[1] < high] for cell in cells)
            if inside
        ]

    edges = [float("-inf")]
    for above, below in cuts:
        tops = heads(below, float("inf"))
        if len(tops) == len(columns) and all(t.heading for t in tops) and _level(tops, height):
            edges.append((above + below) / 2)
    first = heads(float("-inf"), float("inf"))
    if len(edges) < 2 or not all(t.heading for t in first) or not _level(first, height):
        return None
    edges.append(float("inf"))
    if any(
        _row_count([i for i in cell if low <= i.bbox[1] < high]) < 2 for cell in cells for low, high in pairwise(edges)
    ):
        return None
    return [[i for i in everything if low <= i.bbox[1] < high] for low, high in pairwise(edges)]


def _level(items: list[Item], height: float) -> bool:
    tops = [i.bbox[1] for i in items]
    return max(tops) - min(tops) < 0.4 * height


def _column_groups(items: list[Item], height: float) -> list[list[Item]]:
    """The page's bands from top to bottom, joined while one gutter runs through them."""
    bands = _bands(items)
    groups: list[list[Item]] = []
    start = 0
    while start < len(bands):
        end = _group_end(bands, start, height)
        groups.append([i for band in bands[start:end] for i in band])
        start = end
    return groups


def _bands(items: list[Item]) -> list[list[Item]]:
    bands: list[list[Item]] = []
    reach = float("-inf")
    for item in sorted(items, key=lambda i: i.bbox[1]):
        # Boxes of neighbouring lines may overlap by a hair.
        if bands and item.bbox[1] < reach - 0.15 * (item.bbox[3] - item.bbox[1]):
            bands[-1].append(item)
        else:
            bands.append([item])
        reach = max(reach, item.bbox[3])
    return bands


def _group_end(bands: list[list[Item]], start: int, height: float) -> int:
    """One past the last band that shares a gutter with band `start`; the next band if there is none."""
    ink = _ink(bands[start], [], height)
    if len(ink) < 2:
        return start + 1
    best = start + 1
    bottom = max(i.bbox[3] for i in bands[start])
    for end in range(start + 1, len(bands)):
        band = bands[end]
        distance = min(i.bbox[1] for i in band) - bottom
        wider = _ink(band, ink, height)
        if len(wider) < 2:
            break
        one_sided = len(_ink(band, [], height)) < 2
        if one_sided and distance > BAND_GAP * height and not _columns_go_on(bands, end, ink, height):
            break
        ink = wider
        bottom = max(bottom, *(i.bbox[3] for i in band))
        best = end + 1
    if best - start > 1 and best < len(bands) and _heads_next(bands, best - 1, height):
        best -= 1
    if not _columns([i for band in bands[start:best] for i in band], height):
        return start + 1
    return best


def _heads_next(bands: list[list[Item]], last: int, height: float) -> bool:
    """Whether the last band under some columns is the heading of the wider one that follows close below."""
    band, below = bands[last], bands[last + 1]
    if not all(item.heading for item in band) or len(_ink(band, [], height)) > 1:
        return False
    own, wide, above = union(i.bbox for i in band), union(i.bbox for i in below), bands[last - 1]
    gap = wide[1] - own[3]
    reaches = (
        wide[0] < own[0] + height and wide[2] > own[2] + height and wide[2] > max(i.bbox[2] for i in above) - height
    )
    return reaches and gap < height and gap < own[1] - max(i.bbox[3] for i in above)


def _columns_go_on(bands: list[list[Item]], end: int, ink: list[tuple[float, float]], height: float) -> bool:
    """Whether, below a wide white band, the columns above it continue on both sides."""
    for band in bands[end:]:
        ink = _ink(band, ink, height)
        if len(ink) < 2:
            return False
        if len(_ink(band, [], height)) >= 2:
            return True
    return False


def _ink(items: Sequence[Item], ink: list[tuple[float, float]], height: float) -> list[tuple[float, float]]:
    """The stretches of the x axis under `items` and `ink`, those closer than a gutter joined."""
    joined: list[tuple[float, float]] = []
    for left, right in sorted([*ink, *((i.bbox[0], i.bbox[2]) for i in items)]):
        if joined and left - joined[-1][1] < GUTTER * height:
            joined[-1] = (joined[-1][0], max(joined[-1][1], right))
        else:
            joined.append((left, right))
    return joined


def _rows(items: list[Item]) -> list[Item]:
    """Row by row from the top, each row from the left."""
    rows: list[list[Item]] = []
    for item in sorted(items, key=lambda i: (i.bbox[1], i.bbox[0])):
        for row in rows[-4:]:
            if not item.atomic and not row[0].atomic and same_row(row[0].bbox, item.bbox):
                row.append(item)
                break
        else:
            rows.append([item])
    return [item for row in rows for item in sorted(row, key=lambda i: i.bbox[0])]


def _same_column(above: list[Item], below: list[Item]) -> bool:
    a, b = union(i.bbox for i in above), union(i.bbox for i in below)
    overlap = min(a[2], b[2]) - max(a[0], b[0])
    return overlap > 0.8 * min(a[2] - a[0], b[2] - b[0])
