"""Lines, rows and pages of plain geometry for the tests of this folder."""

from __future__ import annotations

import re

from pipeline.page_model import Block, TextLine, Word

SIZE = (600.0, 800.0)
"""Page size, points."""

HEIGHT = 10.0
"""Height of a line of body text, points; characters are half as wide as that."""


def line(text: str, x: float, y: float, *, size: float = HEIGHT, bold: bool | None = False) -> TextLine:
    """A line whose top left corner is (x, y)."""
    words, at = [], x
    for word in text.split(" "):
        width = len(word) * size / 2
        words.append(Word(word, (at, y, at + width, y + size)))
        at += width + size / 4
    return TextLine(text, (x, y, words[-1].bbox[2], y + size), tuple(words), font_size=size, bold=bold)


def column(texts: list[str], x: float, y: float, *, pitch: float = 12.0) -> list[TextLine]:
    """Lines below each other."""
    return [line(text, x, y + pitch * number) for number, text in enumerate(texts)]


def right(text: str, x1: float, y: float) -> TextLine:
    """A line that ends at x1, as numbers in a column do."""
    return line(text, x1 - len(text) * HEIGHT / 2, y)


def texts(blocks: list[Block], *types: str) -> list[str]:
    """What the blocks of the named types (all, if none is named) say, in their order."""
    return [
        "".join(span["content"] for span in b["content"])
        for b in blocks
        if isinstance(b["content"], list) and b["content"] and (not types or b["type"] in types)
    ]


def grid(html: str) -> list[list[str]]:
    """A table's cells, row by row; `<` and `^` stand where a cell from the left or from above spans."""
    rows: list[list[str]] = []
    hanging: dict[tuple[int, int], str] = {}
    for number, row in enumerate(re.findall(r"<tr>(.*?)</tr>", html)):
        cells: list[str] = []

        def fill_from_above(cells: list[str] = cells, number: int = number) -> None:
            while (number, len(cells)) in hanging:
                cells.append(hanging[number, len(cells)])

        for attributes, text in re.findall(r"<t[dh]([^>]*)>(.*?)</t[dh]>", row):
            fill_from_above()
            wide, high = (
                int(found[1]) if (found := re.search(rf'{name}="(\d+)"', attributes)) else 1
                for name in ("colspan", "rowspan")
            )
            for below in range(1, high):
                for beside in range(wide):
                    hanging[number + below, len(cells) + beside] = "<" if beside else "^"
            cells += [text, *["<"] * (wide - 1)]
        fill_from_above()
        rows.append(cells)
    return rows
