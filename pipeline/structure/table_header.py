"""The heads of a table: which columns each one stands over, from its place and from the rules under it."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.page_model import BBox, TextLine, Word
from pipeline.structure.columns import Column, column_of, merged_rules, overlap
from pipeline.structure.geometry import union
from pipeline.structure.table_html import Cell


def header_row(
    row: list[TextLine], header: list[list[TextLine]], columns: list[Column], rules: Sequence[BBox], height: float
) -> list[Cell]:
    """Cells of a header row, each over the columns that it heads."""
    spans: list[tuple[int, int, str]] = []
    grouped = _nearest_groups(row, columns)
    floor = _next_row_top(row, header)
    underlined = [rule for rule in merged_rules(rules, height) if rule[1] <= floor + 0.3 * height]
    for number, piece in enumerate(row):
        if grouped and _evenly_underlined(piece, grouped[number], columns, underlined, height):
            spans.append((grouped[number][0], grouped[number][-1], piece.text))
            continue
        under = [
            rule
            for rule in underlined
            if -0.3 * height <= rule[1] - piece.bbox[3] <= 1.0 * height
            and rule[0] - height <= piece.bbox[0]
            and piece.bbox[2] <= rule[2] + height
        ]
        alone = not under or all(
            overlap(rule, columns[0]) > 0.5 * (columns[0].right - columns[0].left) for rule in under
        )
        heads = (
            _columns_under(min(under, key=lambda rule: rule[2] - rule[0]), columns)
            if not alone
            else (grouped[number] if grouped else _columns_under(piece.bbox, columns))
        )
        if not heads:
            heads = [column_of(piece, columns)]
        spans.append((heads[0], heads[-1], piece.text))
    return _disjoint(spans)


def _next_row_top(row: list[TextLine], header: list[list[TextLine]]) -> float:
    bottom = max(p.bbox[3] for p in row)
    below = [p.bbox[1] for other in header if other is not row for p in other if p.bbox[3] > bottom + 1]
    return min(below, default=float("inf"))


def _evenly_underlined(
    piece: TextLine, group: list[int], columns: list[Column], rules: Sequence[BBox], height: float
) -> bool:
    """No rule under a head, or one under every column of its group: nothing says that it heads fewer."""
    under = [r for r in rules if -0.3 * height <= r[1] - piece.bbox[3] <= 1.0 * height]
    ruled = [i for i in group if any(r[0] <= columns[i].middle <= r[2] for r in under)]
    return not ruled or len(ruled) == len(group)


def _columns_under(box: BBox, columns: list[Column]) -> list[int]:
    return [
        i
        for i, c in enumerate(columns)
        if box[0] <= c.middle <= box[2] or overlap(box, c) > 0.5 * min(c.right - c.left, box[2] - box[0])
    ]


def _nearest_groups(row: list[TextLine], columns: list[Column]) -> list[list[int]] | None:
    """Heads that stand centred over neighbouring columns: which columns each one heads, or None."""
    data = [i for i, c in enumerate(columns) if i > 0 and c.numeric] or list(range(1, len(columns)))
    heads = [p for p in row if p.bbox[2] > columns[data[0]].left]
    if not heads or len(heads) >= len(data):
        return None
    groups: list[list[int]] = [[] for _ in heads]
    centres = [(p.bbox[0] + p.bbox[2]) / 2 for p in heads]
    for i in data:
        groups[min(range(len(heads)), key=lambda h: abs(centres[h] - columns[i].middle))].append(i)
    if len({len(group) for group in groups}) > 1:
        return None
    for centre, group, piece in zip(centres, groups, heads, strict=True):
        if not group:
            return None
        left, right = columns[group[0]].left, columns[group[-1]].right
        off = abs((left + right) / 2 - centre)
        if off > max(0.12 * (right - left), 4.0) and not (piece.bbox[0] <= left and piece.bbox[2] >= right):
            return None
    found = iter(groups)
    return [next(found) if p in heads else [column_of(p, columns)] for p in row]


def _disjoint(spans: list[tuple[int, int, str]]) -> list[Cell]:
    cells: list[Cell] = []
    for first, last, text in sorted(spans):
        if cells and first <= cells[-1].column + cells[-1].colspan - 1:
            previous = cells[-1]
            if first > previous.column:
                cells[-1] = Cell(previous.text, previous.column, first - previous.column, previous.rowspan)
            else:
                cells[-1] = Cell(f"{previous.text} {text}", previous.column, previous.colspan, previous.rowspan)
                continue
        cells.append(Cell(text, first, last - first + 1))
    return cells


def slanted_row(slanted: Sequence[Word], columns: list[Column], height: float) -> list[Cell]:
    """Heads set at an angle begin at the foot of their box, over their column."""
    texts: dict[int, list[str]] = {}
    for word in sorted(slanted, key=lambda w: w.bbox[0]):
        width = word.bbox[2] - word.bbox[0]
        # Upright words stand over the middle; slanted ones lean right from their column.
        foot = word.bbox[0] + min(width / 2, 1.0 * height)
        column = min(range(len(columns)), key=lambda i: abs(columns[i].middle - foot))
        texts.setdefault(column, []).append(word.text)
    return [Cell(" ".join(parts), column, header=True) for column, parts in sorted(texts.items())]


def merge_header(
    header: list[list[Cell]], rows: list[list[TextLine]], rules: Sequence[BBox], height: float
) -> list[list[Cell]]:
    """Heads written over two rows become one cell; every cell of a header row is a header cell."""
    merged: list[list[Cell]] = []
    for number, cells in enumerate(header):
        cells = [Cell(c.text, c.column, c.colspan, c.rowspan, header=True) for c in cells]
        if (
            merged
            and number < len(rows)
            and _continue_head(merged[-1], cells, rows[number - 1], rows[number], rules, height)
        ):
            by_column = {c.column: c for c in merged[-1]}
            for c in cells:
                above = by_column.get(c.column)
                text = f"{above.text} {c.text}" if above else c.text
                by_column[c.column] = Cell(text, c.column, c.colspan, 1, header=True)
            merged[-1] = [by_column[k] for k in sorted(by_column)]
        else:
            merged.append(cells)
    if len(merged) >= 2 and number >= len(rows):
        # Slanted heads and the level heads of the other columns are one row.
        last, slanted = merged[-2], merged[-1]
        taken = {k for c in last for k in range(c.column, c.column + c.colspan)}
        if not taken & {c.column for c in slanted}:
            merged[-2:] = [sorted([*last, *slanted], key=lambda c: c.column)]
    return merged


def _continue_head(
    above: list[Cell],
    below: list[Cell],
    upper: list[TextLine],
    lower: list[TextLine],
    rules: Sequence[BBox],
    height: float,
) -> bool:
    if any(c.colspan > 1 for c in (*above, *below)):
        return False
    top, bottom = union(p.bbox for p in upper), union(p.bbox for p in lower)
    if bottom[1] - top[3] > 0.6 * height:
        return False
    between = [r for r in rules if top[3] - 1 <= r[1] <= bottom[1] + 1 and r[2] - r[0] > height]
    return not between and {c.column for c in above} <= {c.column for c in below} | {0}
