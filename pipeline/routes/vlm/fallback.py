"""A block without a usable answer: from the page's own text, else by our OCR of that region, else as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from pipeline.errors import RouteUnavailable
from pipeline.models import Models
from pipeline.ocr.lines import text_lines
from pipeline.ocr.reading import read_pieces
from pipeline.ocr.rules import find_rules
from pipeline.ocr.tables import recognise_tables
from pipeline.page_model import BBox, Block, Region, RegionKind, TextLine
from pipeline.page_source import PageSource
from pipeline.routes.vlm.extract import points
from pipeline.routes.vlm.text import write_text
from pipeline.structure.cells import draws_rows, filled
from pipeline.structure.geometry import covered
from pipeline.structure.grid import build_table
from pipeline.structure.lattice import lattice

_MARGIN = 3.0
"""Points around a region, so that no letter is cut."""

_LEAST_PIXELS = 8


def fall_back(block: Block, own: Sequence[TextLine], page: PageSource, models: Models) -> str:
    """Fill a block in another way, in place. Answers which: "the text layer", "OCR" or "a picture".

    Args:
        block: of the layout, its content not known.
        own: the text layer's lines within it; empty where there are none to trust.
        page: that it stands on.
        models: of this process.
    """
    kind = block["type"]
    if kind == "equation":
        # Its letters without their places would be wrong: a picture says more.
        block["content"] = ""
        return "a picture"
    box = points(block["bbox"], page.size_pt)
    if own and kind == "table" and (html := table_of(own, box, page)):
        block["content"] = html
        return "the text layer"
    if own and kind != "table":
        write_text(block, own, page.size_pt)
        return "the text layer"
    if _read(block, box, page, models):
        return "OCR"
    block["type"], block["content"] = "image", ""
    return "a picture"


def table_of(lines: Sequence[TextLine], box: BBox, page: PageSource) -> str | None:
    """The table in a box as HTML, from its text and its drawing; None where that makes no table."""
    drawn = page.drawings
    frame = lattice(box, drawn.horizontal, drawn.vertical)
    table = filled(frame, lines) if frame is not None and draws_rows(frame, lines) else None
    if table is None:
        rules = [r for r in drawn.horizontal if covered((r[0], r[1] - 0.5, r[2], r[3] + 0.5), box) > 0.5]
        table = build_table(lines, rules)
    return table.html if table is not None else None


def _read(block: Block, box: BBox, page: PageSource, models: Models) -> bool:
    """Fill the block by OCR; False where that says nothing, or is not installed."""
    import numpy as np

    crop, scale = _crop(page.image, box, page.size_pt)
    if block.get("angle") in (90, 180, 270):
        crop = crop.rotate(block["angle"], expand=True)
    if min(crop.size) < _LEAST_PIXELS:
        return False
    pixels = np.ascontiguousarray(np.asarray(crop)[:, :, ::-1])
    try:
        lines = text_lines(read_pieces(pixels, list(models.text.detect(pixels)), models.text), scale)
        if block["type"] == "table":
            block["content"] = _table(crop, lines, scale, models)
            return block["content"] is not None
    except RouteUnavailable:
        return False
    if lines:
        write_text(block, lines)
    return bool(lines)


def _table(crop: Image.Image, lines: Sequence[TextLine], scale: float, models: Models) -> str | None:
    whole = (0.0, 0.0, crop.width / scale, crop.height / scale)
    region = Region(RegionKind.TABLE, whole, 1.0)
    tables = recognise_tables(crop, lines, [region], find_rules(crop, scale), scale, models.table)
    return tables[0].html if tables else None


def _crop(image: Image.Image, box: BBox, size_pt: tuple[float, float]) -> tuple[Image.Image, float]:
    """The region with a margin of white paper or neighbours, and its pixels per point."""
    scale = image.width / max(1.0, size_pt[0])
    edges = (box[0] - _MARGIN, box[1] - _MARGIN, box[2] + _MARGIN, box[3] + _MARGIN)
    limits = (image.width, image.height) * 2
    x0, y0, x1, y1 = (min(limit, max(0, round(edge * scale))) for edge, limit in zip(edges, limits, strict=True))
    return image.crop((x0, y0, max(x1, x0 + 1), max(y1, y0 + 1))), scale
