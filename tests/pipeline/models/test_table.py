"""The table structure model on drawn tables."""

from __future__ import annotations

import numpy as np
from PIL import Image

from pipeline.models import Models
from pipeline.page_model import TableGrid
from tests.pipeline.ocr.drawing import framed_table


def structure_of(models: Models, rows: list[list[str]]) -> TableGrid:
    size = 200 * len(rows[0]) + 40, 60 * len(rows) + 40
    image = Image.new("RGB", size, "white")
    framed_table(image, rows, (20, 20), (200, 60))
    return models.table.structure(np.ascontiguousarray(np.asarray(image)[:, :, ::-1]))


def test_a_plain_grid_has_its_rows_and_columns(models: Models) -> None:
    found = structure_of(models, [["Shelf", "Boxes", "Pages"], ["North", "12", "2310"], ["East", "14", "3052"]])
    assert (found.rows, found.columns, len(found.cells)) == (3, 3, 9)
    assert found.score > 0.9


def test_cells_lie_where_the_table_has_them(models: Models) -> None:
    found = structure_of(models, [["Shelf", "Boxes", "Pages"], ["North", "12", "2310"], ["East", "14", "3052"]])
    last = found.cells[-1]
    assert (last.row, last.column) == (2, 2)
    x, y = (last.bbox[0] + last.bbox[2]) / 2, (last.bbox[1] + last.bbox[3]) / 2
    assert 420 < x < 620
    assert 140 < y < 200


def test_spans_keep_cells_apart(models: Models) -> None:
    found = structure_of(
        models, [["Year", "Total", "<"], ["^", "Boxes", "Pages"], ["2024", "12", "2310"], ["2025", "14", "3052"]]
    )
    taken = [(c.row + i, c.column + j) for c in found.cells for i in range(c.row_span) for j in range(c.column_span)]
    assert len(taken) == len(set(taken))
