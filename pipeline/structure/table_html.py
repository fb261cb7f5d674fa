"""Cells to the HTML that MinerU's tables are made of."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, its first column (0-based), how many columns and rows it spans."""

    text: str
    column: int
    colspan: int = 1
    rowspan: int = 1
    header: bool = False


def table_html(rows: Sequence[Sequence[Cell]], columns: int, header_rows: int = 0) -> str:
    """`<table>` with one `<td>` (in header rows `<th>`) for every cell and for every gap between cells.

    Args:
        rows: cells from left to right; none may overlap another.
        columns: width of the table; each row is filled up to it.
        header_rows: that many first rows go into `<thead>`.
    """
    head = "".join(_row(row, columns, "th") for row in rows[:header_rows])
    body = "".join(_row(row, columns, "td") for row in rows[header_rows:])
    return f"<table>{f'<thead>{head}</thead>' if head else ''}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[Cell], columns: int, tag: str) -> str:
    parts: list[str] = []
    position = 0
    for cell in cells:
        parts.append(f"<{tag}></{tag}>" * (cell.column - position))
        span = f' colspan="{cell.colspan}"' if cell.colspan > 1 else ""
        span += f' rowspan="{cell.rowspan}"' if cell.rowspan > 1 else ""
        parts.append(f"<{tag}{span}>{html.escape(cell.text, quote=False)}</{tag}>")
        position = cell.column + cell.colspan
    parts.append(f"<{tag}></{tag}>" * (columns - position))
    return f"<tr>{''.join(parts)}</tr>"
