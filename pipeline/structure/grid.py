"""A table's cells from aligned text: columns from white space, rows from baselines, spans from what is over what.

For tables without a full frame. Works on pieces of lines (a piece never spans a gap wider than a word space),
so it serves text layers and OCR alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from pipeline.page_model import BBox, Table, TextLine, Word
from pipeline.structure.columns import Column, column_of, find_columns, merge_complementary, merged_rules, overlap
from pipeline.structure.geometry import line_height, same_row, union
from pipeline.structure.table_header import header_row, merge_header, slanted_row
from pipeline.structure.table_html import Cell, table_html
from pipeline.structure.table_regions import SYMBOL, is_number

_YEAR = re.compile(r"^(?:19|20)\d\d$")
_OPENING = "$€£¥U("


def build_table(
    pieces: Sequence[TextLine],
    rules: Sequence[BBox] = (),
    slanted: Sequence[Word] = (),
) -> Table | None:
    """Rebuild a table from the text in its box.

    Args:
        pieces: the text inside, points; one piece belongs to one cell, or spans columns.
        rules: horizontal rules inside, points; a rule under a head says which columns it heads.
        slanted: words that do not run horizontally: column heads set at an angle.

    Returns:
        The table with the box of its text, or None where no two columns and two rows come out.
    """
    if not pieces:
        return None
    height = line_height(pieces)
    rows = [_join_symbols(row) for row in _rows([part for piece in pieces for part in _split_values(piece)])]
    columns = merge_complementary(find_columns(rows, height), rows, merged_rules(rules, height), height)
    if len(columns) < 2 or len(rows) < 2:
        return None
    rows = [_split_across(row, columns) for row in rows]
    body = _first_body_row(rows, columns)
    header = [header_row(row, rows[: body + 1], columns, rules, height) for row in rows[:body]]
    if slanted:
        header.append(slanted_row(slanted, columns, height))
    grid = [[cell for cell in row if cell.text] for row in merge_header(header, rows[:body], rules, height)]
    grid += _merge_wrapped([_body_row(row, columns) for row in rows[body:]], rows[body:], columns, height)
    boxes = [p.bbox for p in pieces] + [w.bbox for w in slanted]
    return Table(union(boxes), table_html(grid, len(columns), header_rows=len(grid) - _body_count(grid)))


def _rows(pieces: Sequence[TextLine]) -> list[list[TextLine]]:
    rows: list[list[TextLine]] = []
    for piece in sorted(pieces, key=lambda p: (p.bbox[1] + p.bbox[3]) / 2):
        # A row's height is that of its first piece: superscripts and tall brackets must not chain rows.
        if rows and same_row(rows[-1][0].bbox, piece.bbox):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return [sorted(row, key=lambda p: p.bbox[0]) for row in rows]


def _split_values(piece: TextLine) -> list[TextLine]:
    """ "(19) $" is the end of one cell and the beginning of the next; so are two numbers side by side."""
    words = piece.words
    if len(words) < 2 or not all(is_number(w.text) for w in words):
        return [piece]
    parts: list[list[Word]] = [[words[0]]]
    for last, word in pairwise(words):
        opened = SYMBOL.match(last.text) and last.text[0] in _OPENING
        closing = SYMBOL.match(word.text) and word.text[0] not in _OPENING
        if (opened and not closing) or (closing and not opened):
            parts[-1].append(word)
        else:
            parts.append([word])
    return [_cut(piece, part) for part in parts]


def _cut(piece: TextLine, words: Sequence[Word]) -> TextLine:
    text = " ".join(word.text for word in words)
    return TextLine(text, union(w.bbox for w in words), tuple(words), piece.score, piece.font_size, piece.bold)


def _join_symbols(row: list[TextLine]) -> list[TextLine]:
    """Currency signs go to the number right of them; percent signs and brackets to the one on the left."""
    joined: list[TextLine] = []
    for piece in row:
        last = joined[-1] if joined else None
        if last and SYMBOL.match(last.text) and last.text[0] in _OPENING and not SYMBOL.match(piece.text):
            if is_number(piece.text):
                joined[-1] = _join_pieces(last, piece, " ")
                continue
        elif last and SYMBOL.match(piece.text) and piece.text[0] not in _OPENING and is_number(last.text):
            if piece.bbox[0] - last.bbox[2] > 1.5 * (piece.bbox[3] - piece.bbox[1]):
                # A sign that stands alone heads a column of its own.
                joined.append(piece)
                continue
            joined[-1] = _join_pieces(last, piece, "")
            continue
        joined.append(piece)
    return joined


def _join_pieces(a: TextLine, b: TextLine, space: str) -> TextLine:
    return TextLine(
        a.text + space + b.text, union((a.bbox, b.bbox)), a.words + b.words, min(a.score, b.score), b.font_size, b.bold
    )


def _split_across(row: list[TextLine], columns: list[Column]) -> list[TextLine]:
    """Cut a piece where two heads stand so close that they were read as one."""
    pieces: list[TextLine] = []
    for piece in row:
        covered = [c for c in columns if overlap(piece.bbox, c) > 0.25 * (min(c.right, piece.bbox[2]) - c.left)]
        if len(covered) < 2 or len(piece.words) < 2:
            pieces.append(piece)
            continue
        spaces = [b.bbox[0] - a.bbox[2] for a, b in pairwise(piece.words)]
        usual = median(spaces)
        parts: list[list[Word]] = [[piece.words[0]]]
        for (a, b), space in zip(pairwise(piece.words), spaces, strict=True):
            in_gutter = any(
                left.right - 1 <= (a.bbox[2] + b.bbox[0]) / 2 <= right.left + 1 for left, right in pairwise(columns)
            )
            if in_gutter and space > 1.6 * usual:
                parts.append([b])
            else:
                parts[-1].append(b)
        pieces.extend(_cut(piece, part) for part in parts)
    return pieces


def _first_body_row(rows: list[list[TextLine]], columns: list[Column]) -> int:
    """The first row with a label and numbers; what is above it heads the columns."""
    for index, row in enumerate(rows):
        numbers = [p for p in row if is_number(p.text) and not _YEAR.match(p.text) and column_of(p, columns) > 0]
        labelled = column_of(row[0], columns) == 0 or not is_number(row[0].text)
        if numbers and labelled and row[0] is not numbers[0]:
            return _first_label_row(rows, index, columns)
    # No numbers: the first row is the head, as tables of words have it.
    return 1


def _first_label_row(rows: list[list[TextLine]], index: int, columns: list[Column]) -> int:
    """Rows with a label only, right above the first numbers, are a section of the body, not heads."""
    while index > 0:
        row = rows[index - 1]
        alone = len(row) == 1 and column_of(row[0], columns) == 0 and row[0].bbox[0] < columns[0].left + 20
        section = len(row) == 2 and index > 1 and column_of(row[0], columns) == 0 and row[0].bold and not row[1].bold
        if not alone and not section:
            return index
        index -= 1
    return index


def _body_row(row: list[TextLine], columns: list[Column]) -> list[Cell]:
    texts: dict[int, list[str]] = {}
    for piece in row:
        texts.setdefault(column_of(piece, columns), []).append(piece.text)
    return [Cell(" ".join(parts), column) for column, parts in sorted(texts.items())]


def _merge_wrapped(
    cells: list[list[Cell]], rows: list[list[TextLine]], columns: list[Column], height: float
) -> list[list[Cell]]:
    """A label that runs over two lines becomes one cell, with the numbers of whichever line has them."""
    merged: list[list[Cell]] = []
    carried: str | None = None
    width = columns[0].right - columns[0].left
    for number, row in enumerate(cells):
        label_only = len(row) == 1 and row[0].column == 0
        line = rows[number][0]
        if carried is not None:
            label = next((c for c in row if c.column == 0), None)
            if label is not None:
                row = [Cell(f"{carried} {label.text}", 0), *(c for c in row if c.column != 0)]
            else:
                row = [Cell(carried, 0), *row]
            carried = None
        if label_only and merged and number and _continues_label(rows[number - 1][0], line, merged[-1], width, height):
            last = merged[-1]
            merged[-1] = [Cell(f"{last[0].text} {row[0].text}", 0), *last[1:]]
            continue
        if label_only and number + 1 < len(rows) and _wraps(line, rows[number + 1][0], width, height, columns):
            carried = row[0].text
            continue
        merged.append(row)
    if carried is not None:
        merged.append([Cell(carried, 0)])
    return merged


def _wraps(line: TextLine, below: TextLine, width: float, height: float, columns: list[Column]) -> bool:
    if line.text.rstrip().endswith(":") or below.bbox[1] - line.bbox[3] > 0.5 * height:
        return False
    if column_of(below, columns) != 0:
        return False
    if below.text[:1].islower():
        return True
    return line.bbox[2] - line.bbox[0] > 0.85 * width and below.bbox[0] > line.bbox[0] + 0.3 * height


def _continues_label(above: TextLine, line: TextLine, row: list[Cell], width: float, height: float) -> bool:
    if line.bbox[1] - above.bbox[3] > 0.5 * height or row[0].column != 0:
        return False
    return line.text[:1].islower() and len(row) > 1 and above.bbox[2] - above.bbox[0] > 0.6 * width


def _body_count(grid: list[list[Cell]]) -> int:
    return sum(not any(c.header for c in row) for row in grid)
