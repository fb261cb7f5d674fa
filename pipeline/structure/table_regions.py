"""Where tables without a frame stand: rows of short pieces of text that line up in columns."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pipeline.page_model import BBox, TextLine, Word
from pipeline.structure.geometry import gaps, line_height, same_row, union

NUMERIC = re.compile(
    r"^[\(\[]?[-–—−+±~<>≤≥]?\s?(?:[$€£¥]|US\$)?\s?[\(\[]?[-–—−+]?(?:\d[\d,\.\s’'/×x:]*|[-–—−]+)\s?(?:%|pts?|[KMBkmb]n?|x)?[\)\]]*[%*†‡§]*$"
)
"""Numbers as tables print them, dashes for nothing among them."""

SYMBOL = re.compile(r"^(?:[$€£¥]|US\$|%|\)|\(|\)%|\*+)$")
"""What belongs to the number beside it."""

_MATH = re.compile(r"[=∑∏∫√∂∇≤≥≈→∈]")
_EQUATION_NUMBER = re.compile(r"^\(\d{1,3}[a-z]?\)$")

MIN_ROWS = 2
MAX_GAP = 2.2
"""White space between two rows of one table, in line heights; more where all rows are far apart."""

HEADER_GAP = 2.2
MAX_HEADER_ROWS = 7


@dataclass(slots=True)
class _Row:
    pieces: list[TextLine]
    bbox: BBox

    @property
    def numbers(self) -> int:
        return sum(is_number(p.text) for p in self.pieces)


def is_number(text: str) -> bool:
    return bool(NUMERIC.match(text) or SYMBOL.match(text)) and (any(c.isdigit() for c in text) or len(text) <= 4)


def find_tables(lines: Sequence[TextLine], rules: Sequence[BBox] = (), slanted: Sequence[Word] = ()) -> list[BBox]:
    """The boxes of tables on a page, from its text alone.

    Args:
        lines: pieces of lines, points; pieces in different cells must be different lines.
        rules: horizontal rules, points; they extend a table to its frame and tell header rows from captions.
        slanted: words that do not run horizontally, points; right above a table they head its columns.

    Returns:
        Boxes, top to bottom. What has fewer than two rows or no common gutter is not found.
    """
    height = line_height(lines)
    prose = _prose(lines, height)
    barriers = [line.bbox for line in lines if id(line) in prose]
    pieces = [line for line in lines if id(line) not in prose]
    lanes = _lanes(barriers, height)
    boxes: list[BBox] = []
    for box in _scan(pieces, height, barriers, rules, slanted):
        if len(lanes) > 1 and any(_centre_in(b, box) for b in barriers):
            # Rows of two columns of text were taken for one: look again in each column by itself.
            for left, right in lanes:
                inside = [p for p in pieces if left - height <= p.bbox[0] and p.bbox[2] <= right + height]
                inside = [p for p in inside if box[1] - 1 <= p.bbox[1] and p.bbox[3] <= box[3] + 1]
                beside = [b for b in barriers if left - height <= b[0] and b[2] <= right + height]
                boxes += _scan(inside, height, beside, [r for r in rules if left - height <= r[0] <= right], slanted)
        else:
            boxes.append(box)
    return sorted(boxes, key=lambda box: (box[1], box[0]))


def _scan(
    pieces: Sequence[TextLine],
    height: float,
    barriers: Sequence[BBox],
    rules: Sequence[BBox],
    slanted: Sequence[Word],
) -> list[BBox]:
    rows = _rows(pieces)
    found: list[list[_Row]] = []
    start = 0
    while start < len(rows):
        if not _tabular(rows[start]):
            start += 1
            continue
        end = _run_end(rows, start, height, barriers)
        found.extend(_checked(rows[start:end], height, rules))
        start = end
    boxes = []
    floor = float("-inf")
    for run in found:
        box = _with_header(run, rows, height, floor, rules, barriers, slanted)
        boxes.append(box)
        floor = box[3]
    return boxes


def _lanes(prose: Sequence[BBox], height: float) -> list[tuple[float, float]]:
    """The columns that running text stands in, as stretches of the x axis; full-width lines do not count."""
    if not prose:
        return []
    whole = union(prose)
    narrow = [b for b in prose if b[2] - b[0] < 0.6 * (whole[2] - whole[0])]
    free = gaps(((b[0], b[2]) for b in narrow), 0.5 * height)
    edges = [whole[0], *(x for gap in free for x in gap), whole[2]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _centre_in(inner: BBox, box: BBox) -> bool:
    x, y = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _prose(lines: Sequence[TextLine], height: float) -> set[int]:
    """Lines of running text: long, and flush with long neighbours on both sides."""
    long = sorted((line for line in lines if len(line.words) >= 5), key=lambda line: line.bbox[1])
    found: set[int] = set()
    for index, line in enumerate(long):
        for other in long[index + 1 : index + 12]:
            distance = other.bbox[1] - line.bbox[3]
            if distance > 1.2 * height:
                break
            if distance < -0.5 * height:
                continue
            left = abs(other.bbox[0] - line.bbox[0]) < 2.5 * height
            right = abs(other.bbox[2] - line.bbox[2]) < 0.35 * height
            if left and right:
                found.update((id(line), id(other)))
    # The last line of a paragraph is shorter; it stands right under a line of prose.
    flush = sorted((line for line in long if id(line) in found), key=lambda line: line.bbox[3])
    bottoms = [line.bbox[3] for line in flush]
    for line in lines:
        if id(line) in found or len(line.words) < 2:
            continue
        low, high = line.bbox[1] - 0.6 * height, line.bbox[1] + 0.4 * height
        above = flush[bisect_left(bottoms, low) : bisect_right(bottoms, high)]
        if any(abs(o.bbox[0] - line.bbox[0]) < 0.5 * height for o in above) and not _has_number_beside(line, lines):
            found.add(id(line))
    return found


def _has_number_beside(line: TextLine, lines: Sequence[TextLine]) -> bool:
    return any(
        o is not line and o.bbox[0] > line.bbox[2] and same_row(o.bbox, line.bbox) and is_number(o.text) for o in lines
    )


def _rows(lines: Sequence[TextLine]) -> list[_Row]:
    rows: list[_Row] = []
    for line in sorted(lines, key=lambda line: (line.bbox[1] + line.bbox[3]) / 2):
        middle = (line.bbox[1] + line.bbox[3]) / 2
        if rows and rows[-1].bbox[1] <= middle <= rows[-1].bbox[3] and same_row(rows[-1].pieces[0].bbox, line.bbox):
            rows[-1].pieces.append(line)
            rows[-1].bbox = union((rows[-1].bbox, line.bbox))
        else:
            rows.append(_Row([line], line.bbox))
    for row in rows:
        row.pieces.sort(key=lambda piece: piece.bbox[0])
    return rows


def _tabular(row: _Row) -> bool:
    pieces = [p for p in row.pieces if not SYMBOL.match(p.text)]
    if len(pieces) < 2:
        return False
    if any(is_number(p.text) for p in pieces[1:]):
        return True
    return len(pieces) >= 3 and all(len(p.text) <= 40 for p in pieces)


def _run_end(rows: list[_Row], start: int, height: float, barriers: Sequence[BBox]) -> int:
    """One past the last row that goes on with the table which begins at `start`."""
    last = start
    box = rows[start].bbox
    spaces: list[float] = []
    index = start + 1
    while index < len(rows):
        row = rows[index]
        space = row.bbox[1] - rows[index - 1].bbox[3]
        usual = max(0.0, median(spaces)) if spaces else height
        if space > max(MAX_GAP * height, 2.5 * usual) or _crosses(box, row.bbox, barriers) or index - last > 4:
            break
        if space > max(1.2 * height, 2.0 * usual) and not _tabular(row) and _new_head(rows, start, index, height):
            break
        if _tabular(row):
            last = index
            box = union((box, row.bbox))
        elif _sentence(row, box):
            break
        spaces.append(space)
        index += 1
    return last + 1


def _new_head(rows: list[_Row], start: int, index: int, height: float) -> bool:
    """Whether the rows from `index` on open another table: heads over its columns, and no label beside them."""
    labels_end = _labels_end(rows[start:index])
    for row in rows[index : index + 5]:
        if any(_is_value(p.text) for p in row.pieces):
            return False
        if len(row.pieces) >= 2 or row.bbox[0] >= labels_end - height:
            return True
    return False


def _is_value(text: str) -> bool:
    return is_number(text) and any(c.isdigit() for c in text) and not re.fullmatch(r"(?:19|20)\d\d", text)


def _crosses(box: BBox, row: BBox, barriers: Sequence[BBox]) -> bool:
    """Whether running text stands between a table and the next row."""
    for other in barriers:
        if other[1] > box[3] - 1 and other[3] < row[1] + 1 and other[0] < max(box[2], row[2]) and other[2] > box[0]:
            return True
    return False


def _sentence(row: _Row, box: BBox) -> bool:
    """A line of text that runs over the columns of the table above it."""
    if len(row.pieces) > 1:
        return False
    piece = row.pieces[0]
    ends = len(piece.text) > 60 and piece.text.rstrip()[-1:] in ".:"
    return ends or (len(piece.words) >= 8 and row.bbox[2] - row.bbox[0] > 0.6 * (box[2] - box[0]))


def _framed(run: list[_Row], height: float, rules: Sequence[BBox]) -> bool:
    """Whether rules run across the rows, as over and under a table of words."""
    box = union(row.bbox for row in run)
    width = box[2] - box[0]
    across = [
        r
        for r in rules
        if box[1] - 2 * height <= r[1] <= box[3] + 2 * height and min(r[2], box[2]) - max(r[0], box[0]) > 0.6 * width
    ]
    return len({round(r[1] / 3) for r in across}) >= 2


def _checked(run: list[_Row], height: float, rules: Sequence[BBox]) -> list[list[_Row]]:
    """The run, if its rows share a gutter; the longest part that does otherwise."""
    tabular = [row for row in run if _tabular(row)]
    if len(tabular) < MIN_ROWS:
        return []
    # The number of a formula is no value, and a few names side by side (authors, signatures) are no table.
    valued = [
        row for row in tabular if any(_is_value(p.text) and not _EQUATION_NUMBER.match(p.text) for p in row.pieces[1:])
    ]
    if len(valued) < 2 and not (valued and _framed(run, height, rules)):
        wordy = [row for row in tabular if len(row.pieces) >= 3]
        mathematical = any(_MATH.search(p.text) for row in tabular for p in row.pieces)
        if mathematical or len(wordy) < 2 or (len(wordy) < 4 and not _framed(run, height, rules)):
            return []
    intervals = [(p.bbox[0], p.bbox[2]) for row in tabular for p in row.pieces]
    if gaps(intervals, 0.5 * height):
        return [run]
    parts: list[list[_Row]] = []
    current: list[_Row] = []
    for row in run:
        trial = [p for r in [*current, row] if _tabular(r) for p in r.pieces]
        if current and trial and not gaps(((p.bbox[0], p.bbox[2]) for p in trial), 0.5 * height):
            parts.append(current)
            current = [row]
        else:
            current.append(row)
    parts.append(current)
    kept = []
    for part in parts:
        while part and not _tabular(part[-1]):
            part.pop()
        while part and not _tabular(part[0]):
            part.pop(0)
        if sum(_tabular(row) for row in part) >= MIN_ROWS + 1:
            kept.append(part)
    return kept


def _with_header(
    run: list[_Row],
    rows: list[_Row],
    height: float,
    floor: float,
    rules: Sequence[BBox],
    barriers: Sequence[BBox],
    slanted: Sequence[Word],
) -> BBox:
    """The box of a table with the header rows above its first row of numbers and the rules that frame it."""
    box = union(row.bbox for row in run)
    pieces = [p for row in run if _tabular(row) for p in row.pieces]
    labels_end = _labels_end(run)
    first = next(i for i, row in enumerate(rows) if row is run[0])
    data_centre, centre = (labels_end + box[2]) / 2, (box[0] + box[2]) / 2
    top = min([box[1], *(w.bbox[1] for w in slanted if _heads(w.bbox, run, box, rows, height))])
    for row in reversed(rows[max(0, first - MAX_HEADER_ROWS) : first]):
        if row.bbox[1] < floor or top - row.bbox[3] > HEADER_GAP * height or _crosses_up(row.bbox, top, box, barriers):
            break
        over_columns = all(p.bbox[0] >= labels_end - height for p in row.pieces)
        short = all(len(p.text) <= 60 for p in row.pieces)
        if not short or not (over_columns or len(row.pieces) >= 2):
            break
        middle = (row.bbox[0] + row.bbox[2]) / 2
        if len(row.pieces) == 1 and abs(middle - centre) < min(height, 0.5 * abs(middle - data_centre)):
            # Centred over the whole table, not over its columns: a title.
            break
        top = min(top, row.bbox[1])
        top = min([top, *(w.bbox[1] for w in slanted if _heads(w.bbox, [row], box, rows, height))])
        box = union((box, row.bbox))
    box = union(
        [box, *(w.bbox for w in slanted if w.bbox[1] >= top - 1 and w.bbox[3] <= box[3] and _over(w.bbox, box))]
    )
    left, right = min(p.bbox[0] for p in pieces), max(p.bbox[2] for p in pieces)
    for rule in rules:
        # A frame's rules stand right above the header and right under the last row.
        near = -0.2 * height <= box[1] - rule[3] <= 0.8 * height or -0.2 * height <= rule[1] - box[3] <= 0.8 * height
        if near and rule[0] > left - 2 * height and rule[2] < right + 2 * height:
            box = union((box, rule))
    return box


def _heads(word: BBox, run: list[_Row], box: BBox, rows: list[_Row], height: float) -> bool:
    """Whether a slanted word stands on the first row of a table, or beside it."""
    first = run[0].bbox
    return _over(word, box) and (abs(first[1] - word[3]) < 1.5 * height or abs(first[3] - word[3]) < 0.8 * height)


def _over(word: BBox, box: BBox) -> bool:
    return box[0] <= word[0] <= box[2]


def _labels_end(run: list[_Row]) -> float:
    """Where the first column's text usually ends: the left edge of the leftmost number."""
    starts = [p.bbox[0] for row in run for p in row.pieces[1:] if is_number(p.text)]
    return min(starts) if starts else run[0].pieces[0].bbox[2]


def _crosses_up(row: BBox, top: float, box: BBox, barriers: Sequence[BBox]) -> bool:
    return any(b[1] >= row[3] - 1 and b[3] <= top + 1 and b[0] < box[2] and b[2] > box[0] for b in barriers)
