"""Tables of scans, from the picture to HTML."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from pipeline.models import Models
from pipeline.ocr.lines import text_lines
from pipeline.ocr.reading import read_pieces
from pipeline.ocr.rules import find_rules
from pipeline.ocr.tables import recognise_tables
from pipeline.page_model import Region, RegionKind, Table, TextLine
from pipeline.structure.lattice import lattice
from tests.pipeline.ocr.drawing import PAGE, SCALE, font, framed_table, page
from tests.pipeline.structure.build import grid


def lines_of(models: Models, image: Image.Image) -> list[TextLine]:
    pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
    return text_lines(read_pieces(pixels, list(models.text.detect(pixels)), models.text), SCALE)


def tables_of(models: Models, image: Image.Image, regions: list[Region]) -> list[Table]:
    return recognise_tables(image, lines_of(models, image), regions, find_rules(image, SCALE), SCALE, models.table)


def region(x0: float, y0: float, x1: float, y1: float, kind: RegionKind = RegionKind.TABLE) -> Region:
    """A region given in pixels."""
    return Region(kind, (x0 / SCALE, y0 / SCALE, x1 / SCALE, y1 / SCALE), 0.9)


SPANNED = [
    ["Shelf", "Photographed", "<"],
    ["^", "Boxes", "Pages"],
    ["North", "12", "2310"],
    ["East", "14", "3052"],
]


def test_a_framed_table_keeps_its_spans(models: Models) -> None:
    image = Image.new("RGB", PAGE, "white")
    framed_table(image, SPANNED, (200, 300), (240, 70))
    (table,) = tables_of(models, image, [region(195, 295, 925, 585)])
    assert 'rowspan="2">Shelf</td>' in table.html
    assert 'colspan="2">Photographed</td>' in table.html
    assert "<tr><td>East</td><td>14</td><td>3052</td></tr>" in table.html


def test_a_table_without_rules_is_found_and_rebuilt(models: Models) -> None:
    image = page()
    rows = [("", "2024", "2023"), ("Revenue", "1,200", "1,100"), ("Cost", "(700)", "(650)"), ("Net", "500", "450")]
    for number, row in enumerate(rows):
        for x, text in zip((150, 700, 950), row, strict=True):
            ImageDraw.Draw(image).text((x, 600 + 44 * number), text, fill="black", font=font(26))
    (table,) = tables_of(models, image, [])
    assert ["Revenue", "1,200", "1,100"] in grid(table.html)
    assert ["Net", "500", "450"] in grid(table.html)


def test_prose_is_not_a_table(models: Models) -> None:
    assert tables_of(models, page(), []) == []


def test_the_labels_of_a_figure_are_not_a_table(models: Models) -> None:
    image = Image.new("RGB", PAGE, "white")
    for row in range(4):
        for column in range(4):
            place = (200 + 200 * column, 300 + 80 * row)
            ImageDraw.Draw(image).text(place, f"{row}{column}0", fill="black", font=font(26))
    assert tables_of(models, image, [region(150, 250, 1100, 650, RegionKind.FIGURE)]) == []


def test_rules_close_into_the_grid_they_draw() -> None:
    image = Image.new("RGB", PAGE, "white")
    framed_table(image, SPANNED, (200, 300), (240, 70))
    rules = find_rules(image, SCALE)
    found = lattice((195 / SCALE, 295 / SCALE, 925 / SCALE, 585 / SCALE), rules.horizontal, rules.vertical)
    assert found is not None
    assert (found.rows, found.columns) == (4, 3)
    spans = {(c.row, c.column): (c.row_span, c.column_span) for c in found.cells}
    assert spans[0, 0] == (2, 1)
    assert spans[0, 1] == (1, 2)
    assert len(spans) == 10


def test_rules_that_do_not_close_are_no_grid() -> None:
    image = Image.new("RGB", PAGE, "white")
    for y in (300, 370, 440):
        ImageDraw.Draw(image).line((200, y, 900, y), fill="black", width=2)
    rules = find_rules(image, SCALE)
    assert lattice((195 / SCALE, 295 / SCALE, 905 / SCALE, 445 / SCALE), rules.horizontal, rules.vertical) is None


def test_letters_are_not_rules() -> None:
    rules = find_rules(page(), SCALE)
    assert rules.horizontal == ()
    assert rules.vertical == ()
