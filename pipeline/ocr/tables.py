"""Tables of a scanned page: where they are, what grid they have, which words stand in which cell.

Three ways to the grid, the first plausible one wins: rules that close into a frame, the structure model, and
the white space between the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image

from pipeline.models.table import TableModel
from pipeline.ocr.rules import Rules
from pipeline.ocr.sizes import hard_to_read
from pipeline.page_model import BBox, Region, RegionKind, Table, TableCell, TableGrid, TextLine
from pipeline.structure.cells import FITTING, draws_rows, filled
from pipeline.structure.geometry import covered, union
from pipeline.structure.grid import build_table
from pipeline.structure.lattice import lattice
from pipeline.structure.table_regions import find_tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REGION_SCORE = 0.5
"""Confidence from which a table that only the layout model sees is believed."""

STRUCTURE_SCORE = 0.9
"""Confidence in its tags from which the model's structure is plausible."""


def recognise_tables(
    image: Image.Image,
    lines: Sequence[TextLine],
    regions: Sequence[Region],
    rules: Rules,
    scale: float,
    model: TableModel,
) -> list[Table]:
    """The tables of a straightened page.

    Args:
        image: the page, RGB.
        lines: its text, points; a line never crosses from one cell to another.
        regions: what the layout model saw.
        rules: what is drawn on the page.
        scale: pixels per point of `image`.
        model: for the structure of tables without a frame.
    """
    claimed = [r.bbox for r in regions if r.kind is RegionKind.TABLE and r.score >= REGION_SCORE]
    figures = [r.bbox for r in regions if r.kind is RegionKind.FIGURE]
    # Handwriting lines up by chance, and a chart's labels by design.
    found = [] if hard_to_read(lines) else find_tables(lines)
    boxes = claimed + [box for box in found if not any(_overlap(box, other) for other in claimed + figures)]
    if not boxes:
        return []
    tables: list[Table] = []
    for box in boxes:
        inside = [line for line in lines if covered(line.bbox, box) > 0.5]
        if len(inside) < 4 or any(_overlap(box, table.bbox) for table in tables):
            continue
        frame = lattice(box, rules.horizontal, rules.vertical)
        if frame is not None and draws_rows(frame, inside):
            table = filled(frame, inside, FITTING)
        else:
            table = _modelled(image, box, inside, scale, model)
        table = table or build_table(inside, [r for r in rules.horizontal if covered(r, box) > 0.5])
        if table is not None:
            tables.append(table)
    return tables


def _overlap(a: BBox, b: BBox) -> bool:
    return covered(a, b) > 0.3 or covered(b, a) > 0.3


def _modelled(
    image: Image.Image, box: BBox, lines: Sequence[TextLine], scale: float, model: TableModel
) -> Table | None:
    """The table as the structure model sees it, if its cells are where the words are."""
    around = union([box, *(line.bbox for line in lines)])
    margin = 2.0
    x0, y0 = max(0.0, around[0] - margin), max(0.0, around[1] - margin)
    crop = image.crop(
        (int(x0 * scale), int(y0 * scale), int((around[2] + margin) * scale), int((around[3] + margin) * scale))
    )
    if min(crop.size) < 16:
        return None
    structure = model.structure(_bgr(crop))
    if structure.score < STRUCTURE_SCORE or structure.rows < 2 or structure.columns < 2:
        return None
    cells = tuple(
        TableCell(
            c.row,
            c.column,
            c.row_span,
            c.column_span,
            (x0 + c.bbox[0] / scale, y0 + c.bbox[1] / scale, x0 + c.bbox[2] / scale, y0 + c.bbox[3] / scale),
        )
        for c in structure.cells
    )
    return filled(TableGrid(structure.rows, structure.columns, cells, structure.score), lines, FITTING)


def _bgr(image: Image.Image) -> NDArray[np.uint8]:
    import numpy as np

    return np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1])
