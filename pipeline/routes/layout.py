"""The layout route: born-digital pages with tables without a frame, or columns that are not plain.

The words come from the page's own text layer and the drawing from its own objects, so nothing is recognised
and nothing can be misread: the page is put in order by its white space alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import mineru
from pipeline.errors import RouteUnavailable
from pipeline.models import Models
from pipeline.page_model import BBox, PageModel, Region, Table, TextLine
from pipeline.page_source import PageSource
from pipeline.structure.cells import draws_rows, filled, hides_rows, leaves_labels
from pipeline.structure.figures import captioned_figures, confirmed_figures, find_figures, scattered
from pipeline.structure.formulas import find_formulas
from pipeline.structure.geometry import covered
from pipeline.structure.grid import build_table
from pipeline.structure.lattice import bounds, find_frames
from pipeline.structure.page import build_blocks, margin_notes
from pipeline.structure.table_regions import find_tables


def recognise(page: PageSource, models: Models) -> PageModel:
    """Put a page in order from its text layer.

    Args:
        page: a page with a sound text layer; what that layer lacks is lost.
        models: of this process; the layout model is asked on pages with scattered drawings only.

    Returns:
        Blocks in reading order; empty for a page without text and pictures.

    Raises:
        pypdfium2.PdfiumError: the page's text or, where a picture is cut out, its pixels cannot be read.
    """
    drawn = page.drawings
    diagrams = _diagrams(page, models)
    plain = (*drawn.boxes, *drawn.horizontal, *drawn.vertical)
    for figure in captioned_figures(page.text.lines, drawn.shapes, plain, page.size_pt):
        if not any(covered(figure.bbox, d.bbox) > 0.5 for d in diagrams):
            diagrams.append(figure)
    tables = page_tables(page, [d.bbox for d in diagrams])
    solid = [*(t.bbox for t in tables), *(d.bbox for d in diagrams)]
    regions = diagrams + find_figures(drawn.images, drawn.shapes, solid, page.size_pt)
    solid += [r.bbox for r in regions]
    regions += find_formulas(page.text.lines, drawn.horizontal, solid)
    blocks = margin_notes([w for w in page.text.slanted if not _inside(w.bbox, solid)], page.size_pt)
    blocks += build_blocks(page.text.lines, regions, tables, page.size_pt, drawn.horizontal)
    if any(block["type"] != "table" for block in blocks if mineru.has_pictures([block])):
        mineru.attach_pictures(blocks, page.image)
    mineru.normalise(blocks)
    width, height = page.size_pt
    return PageModel(blocks, width, height)


def page_tables(page: PageSource, diagrams: Sequence[BBox] = ()) -> list[Table]:
    """The tables of a born-digital page, none of them inside a diagram."""
    text, drawn = page.text, page.drawings
    lines = [line for line in text.lines if not _inside(line.bbox, diagrams)]
    tables = _framed_tables(lines, drawn.horizontal, drawn.vertical)
    lines = [line for line in lines if not _inside(line.bbox, [table.bbox for table in tables])]
    for box in find_tables(lines, drawn.horizontal, text.slanted):
        table = build_table(
            [line for line in lines if covered(line.bbox, box) > 0.5],
            [rule for rule in drawn.horizontal if covered(_thick(rule), box) > 0.5],
            [word for word in text.slanted if covered(word.bbox, box) > 0.5],
        )
        if table is not None:
            tables.append(Table(box, table.html))
    return tables


def _framed_tables(lines: Sequence[TextLine], horizontal: Sequence[BBox], vertical: Sequence[BBox]) -> list[Table]:
    """Tables whose cells are drawn: nothing about their grid has to be guessed."""
    tables = []
    for frame in find_frames(horizontal, vertical):
        outline = bounds(frame)
        inside = [line for line in lines if covered(line.bbox, outline) > 0.5]
        if len(inside) < 2 or hides_rows(frame, inside) or leaves_labels(frame, lines):
            continue
        if draws_rows(frame, inside) and (table := filled(frame, inside)):
            tables.append(Table(outline, table.html))
    return tables


def _diagrams(page: PageSource, models: Models) -> list[Region]:
    shapes = page.drawings.shapes
    if not scattered(shapes):
        return []
    # The network sees 800 pixels of height; more would be thrown away.
    scale = min(1.4, 1200 / max(1.0, *page.size_pt))
    bitmap = page.page.render(scale=scale, may_draw_forms=True)
    try:
        regions = models.layout(bitmap.to_pil().convert("RGB"), scale)
    except RouteUnavailable:
        return []
    finally:
        bitmap.close()
    return confirmed_figures(regions, shapes, page.text.lines, page.size_pt)


def _inside(box: BBox, solid: Sequence[BBox]) -> bool:
    return any(covered(box, other) > 0.5 for other in solid)


def _thick(rule: BBox) -> BBox:
    return (rule[0], rule[1] - 0.5, rule[2], rule[3] + 0.5)
