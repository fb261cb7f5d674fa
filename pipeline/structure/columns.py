"""The columns of a table without a frame, from where its text stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.page_model import BBox, TextLine
from pipeline.structure.geometry import union
from pipeline.structure.table_regions import is_number


@dataclass(slots=True)
class Column:
    left: float
    right: float
    pieces: list[TextLine] = field(default_factory=list)

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2

    @property
    def numeric(self) -> bool:
        return sum(is_number(p.text) for p in self.pieces) * 2 > len(self.pieces)


def find_columns(rows: list[list[TextLine]], height: float) -> list[Column]:
    """Columns as the stretches of the x axis that the cells of the fullest rows share."""
    counts = [len(row) for row in rows]
    full = max(2, round(0.6 * _typical_most(counts)))
    columns: list[Column] = []
    ordered = [p for row in rows if len(row) >= full for p in row if is_number(p.text)]
    texts = [p for row in rows if len(row) >= full for p in row if not is_number(p.text)]
    rest = [p for row in rows if len(row) < full for p in row]
    ordered += sorted(texts, key=lambda p: p.bbox[2] - p.bbox[0])
    ordered += sorted(rest, key=lambda p: p.bbox[2] - p.bbox[0])
    certain = len(ordered) - len(rest)
    for number, piece in enumerate(ordered):
        hit = [c for c in columns if overlap(piece.bbox, c) > 0.1 * height]
        if not hit:
            if number < certain or not _between(piece, columns):
                columns.append(Column(piece.bbox[0], piece.bbox[2], [piece]))
        elif len(hit) == 1:
            if number < certain or piece.bbox[2] - piece.bbox[0] <= 1.3 * (hit[0].right - hit[0].left):
                hit[0].left = min(hit[0].left, piece.bbox[0])
                hit[0].right = max(hit[0].right, piece.bbox[2])
            hit[0].pieces.append(piece)
        elif number < certain and is_number(piece.text):
            columns = [c for c in columns if c not in hit]
            columns.append(
                Column(
                    min([piece.bbox[0], *(c.left for c in hit)]),
                    max([piece.bbox[2], *(c.right for c in hit)]),
                    [piece, *(p for c in hit for p in c.pieces)],
                )
            )
    return _melt(sorted(columns, key=lambda c: c.left), height)


def _typical_most(counts: list[int]) -> int:
    """How many cells a full row has: the largest number that several rows reach."""
    ordered = sorted(counts, reverse=True)
    return ordered[min(len(ordered) - 1, len(ordered) // 5)]


def overlap(box: BBox, column: Column) -> float:
    return min(box[2], column.right) - max(box[0], column.left)


def _between(piece: TextLine, columns: list[Column]) -> bool:
    """A lone piece in the white between two columns heads them rather than making a column."""
    lefts = [c for c in columns if c.right <= piece.bbox[0]]
    rights = [c for c in columns if c.left >= piece.bbox[2]]
    return bool(lefts and rights)


def _melt(columns: list[Column], height: float) -> list[Column]:
    """Columns that grew into each other are one."""
    melted: list[Column] = []
    for column in columns:
        if melted and melted[-1].right - column.left > 0.1 * height:
            melted[-1].right = max(melted[-1].right, column.right)
            melted[-1].pieces += column.pieces
        else:
            melted.append(column)
    return melted


def merge_complementary(
    columns: list[Column], rows: list[list[TextLine]], rules: Sequence[BBox], height: float
) -> list[Column]:
    """Neighbours that no row fills both are a head and its numbers, or two indents: one column.

    They must stand close, or over one rule, which says where a column begins and ends.
    """
    spread = [[(n, p) for n, row in enumerate(rows) for p in row if overlap(p.bbox, c) > 0] for c in columns]
    merged: list[Column] = []
    taken: list[set[int]] = []
    for column, pieces in zip(columns, spread, strict=True):
        last = merged[-1] if merged else None
        own = {n for n, _ in pieces}
        if last is not None:
            # A piece over both columns fills neither by itself.
            both = any(n in taken[-1] and overlap(p.bbox, last) <= 0 for n, p in pieces)
            ruled = any(r[0] - 1 <= last.middle and column.middle <= r[2] + 1 for r in rules)
            if not both and (ruled or column.left - last.right < height):
                merged[-1] = Column(last.left, max(last.right, column.right), last.pieces + column.pieces)
                taken[-1] |= own
                continue
        merged.append(column)
        taken.append(set(own))
    return merged


def merged_rules(rules: Sequence[BBox], height: float) -> list[BBox]:
    """Rules drawn cell by cell, put together; small breaks between column groups stay."""
    merged: list[BBox] = []
    for rule in sorted(rules, key=lambda r: (round(r[1]), r[0])):
        last = merged[-1] if merged else None
        if last and abs(rule[1] - last[1]) < 1.5 and rule[0] - last[2] < 0.45 * height:
            merged[-1] = union((last, rule))
        else:
            merged.append(rule)
    return merged


def column_of(piece: TextLine, columns: list[Column]) -> int:
    """The column a piece stands in: most overlap, else the nearest; a long label counts by where it begins."""
    overlaps = [overlap(piece.bbox, c) for c in columns]
    hits = [i for i, overlap in enumerate(overlaps) if overlap > 0]
    if len(hits) > 1 and not is_number(piece.text):
        return hits[0]
    if hits:
        return max(hits, key=lambda i: overlaps[i])
    middle = (piece.bbox[0] + piece.bbox[2]) / 2
    return min(range(len(columns)), key=lambda i: min(abs(middle - columns[i].left), abs(middle - columns[i].right)))
