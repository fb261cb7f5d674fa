"""Figures of a born-digital page, from what is drawn on it: raster pictures and heaps of paths."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.page_model import BBox, Region, RegionKind, TextLine
from pipeline.structure.geometry import area, covered, line_height, union

MIN_SIDE = 24.0
"""Points; what is smaller is an ornament."""

MIN_SHAPES = 4
"""Paths in a heap from which it is a drawing; fewer are bullets, underlines, brackets."""

MIN_CAPTIONED = 2
"""The same where a caption says that it is a figure."""

PROSE_WORDS = 6
"""Words of a line from which it is no label."""

FIGURE_CAPTION = re.compile(
    r"^(?:fig(?:ure|\.)?|abb(?:ildung|\.)|scheme|chart|diagram|图)\s*[0-9IVX]+(?:[.\-][0-9]+)?\s*(?:[.:|–—]|$)",
    re.IGNORECASE,
)

_CAPTION_GAP = 4.0
_PART_GAP = 3.0
"""Line heights between a caption and its drawing, and between two parts of a drawing."""

MANY_HEAPS = 6
"""Separate drawings from which they may be parts of one diagram, whose extent only the layout model can tell."""

MIN_SCORE = 0.6

BACKGROUND = 0.55
"""Share of the page from which a picture lies behind the text rather than beside it."""

EDGE = 0.075
"""Share of the page's height, at either end, where pictures are logos."""

_REACH = 6.0
_MAX_SHAPES = 1500


def scattered(shapes: Sequence[BBox]) -> bool:
    """Whether what is drawn on a page falls apart, so that a look at the pixels is worth its price."""
    return len(shapes) >= MANY_HEAPS and len(_heaps([*shapes[:_MAX_SHAPES]])) >= MANY_HEAPS


def confirmed_figures(
    regions: Sequence[Region], shapes: Sequence[BBox], lines: Sequence[TextLine], size_pt: tuple[float, float]
) -> list[Region]:
    """The figures that the layout model saw and that shapes are drawn in: diagrams with text of their own.

    Args:
        regions: the model's, points.
        shapes: paths that are neither rules nor plain boxes, points.
        lines: the page's text; a region that takes in captions or prose is not believed.
        size_pt: page size, points.
    """
    page = size_pt[0] * size_pt[1]
    figures: list[Region] = []
    for region in sorted(regions, key=lambda r: -area(r.bbox)):
        if region.kind is not RegionKind.FIGURE or region.score < MIN_SCORE or area(region.bbox) > BACKGROUND * page:
            continue
        if sum(covered(s, region.bbox) > 0.5 or _centre_in(s, region.bbox) for s in shapes) < MIN_SHAPES:
            continue
        if holds_prose([line for line in lines if covered(line.bbox, region.bbox) > 0.6], region.bbox):
            continue
        if not any(covered(region.bbox, f.bbox) > 0.5 for f in figures):
            figures.append(region)
    return figures


def captioned_figures(
    lines: Sequence[TextLine],
    shapes: Sequence[BBox],
    plain: Sequence[BBox],
    size_pt: tuple[float, float],
) -> list[Region]:
    """Drawings of few shapes that a caption next to them calls a figure.

    Args:
        lines: the page's text, points.
        shapes: curves, arrows, plots, points.
        plain: rules and rectangles, points; they may be parts of a drawing, of a table or of the page.
        size_pt: page size, points.
    """
    if not shapes:
        return []
    height = line_height(lines)
    page = size_pt[0] * size_pt[1]
    drawn = [box for box in (*shapes[:_MAX_SHAPES], *plain[:_MAX_SHAPES]) if area(box) <= BACKGROUND * page]
    figures: list[Region] = []
    for caption in lines:
        if not FIGURE_CAPTION.match(caption.text) or any(covered(caption.bbox, f.bbox) > 0.5 for f in figures):
            continue
        for above in (True, False):
            box = _drawing_at(caption, drawn, shapes, lines, height, above)
            if box is None or box[2] - box[0] < 2 * MIN_SIDE or box[3] - box[1] < MIN_SIDE:
                continue
            if area(box) > BACKGROUND * page or sum(_centre_in(s, box) for s in shapes) < MIN_CAPTIONED:
                continue
            inside = [line for line in lines if covered(line.bbox, box) > 0.6]
            if not holds_prose(inside, box):
                figures.append(Region(RegionKind.FIGURE, box, 1.0))
                break
    return figures


def _drawing_at(
    caption: TextLine,
    drawn: Sequence[BBox],
    shapes: Sequence[BBox],
    lines: Sequence[TextLine],
    height: float,
    above: bool,
) -> BBox | None:
    """What is drawn right above, or right below, a caption, with its labels, up to the next line of prose.

    None where there is nothing, or where the drawing goes on behind that line: half a figure helps nobody.
    """
    edge = caption.bbox[1] if above else caption.bbox[3]
    prose = [line.bbox for line in lines if len(line.words) >= PROSE_WORDS and line is not caption]
    if above:
        limit = max([b[3] for b in prose if b[3] <= edge and _shares_columns(b, caption.bbox)], default=float("-inf"))
        near = [b for b in drawn if limit - 1 <= b[1] and b[3] <= edge + 1]
    else:
        limit = min([b[1] for b in prose if b[1] >= edge and _shares_columns(b, caption.bbox)], default=float("inf"))
        near = [b for b in drawn if edge - 1 <= b[1] and b[3] <= limit + 1]
    box: BBox | None = None
    for part in sorted(near, key=lambda b: -b[3] if above else b[1]):
        reference = box or caption.bbox
        gap = max(part[1] - reference[3], reference[1] - part[3])
        if gap > (_CAPTION_GAP if box is None else _PART_GAP) * height:
            break
        if not _shares_columns(part, reference) and gap > 0:
            continue
        box = part if box is None else union((box, part))
    if box is None:
        return None
    reach = _PART_GAP * height
    beyond = [
        s
        for s in shapes[:_MAX_SHAPES]
        if (limit - reach < s[3] and s[1] < limit if above else limit < s[3] and s[1] < limit + reach)
    ]
    if any(_shares_columns(s, box) for s in beyond):
        return None
    labels = [
        line.bbox
        for line in lines
        if line is not caption and len(line.words) < PROSE_WORDS and 0 < covered(line.bbox, box) <= 1
    ]
    return union((box, *labels))


def _shares_columns(a: BBox, b: BBox) -> bool:
    return min(a[2], b[2]) > max(a[0], b[0]) - _REACH


def holds_prose(inside: Sequence[TextLine], box: BBox) -> bool:
    """Whether the lines in a box are text to be read rather than the words of a picture."""
    ink = sum(area(line.bbox) for line in inside)
    words = sum(len(line.words) for line in inside)
    prose = sum(len(line.words) >= 6 for line in inside)
    return words >= 25 and (ink > 0.35 * area(box) or prose * 3 > len(inside))


def find_figures(
    images: Sequence[BBox], shapes: Sequence[BBox], tables: Sequence[BBox], size_pt: tuple[float, float]
) -> list[Region]:
    """Where the page shows something.

    Args:
        images: raster pictures, points.
        shapes: paths that are neither rules nor plain boxes, points.
        tables: what is drawn inside a table belongs to it.
        size_pt: page size, points.

    Returns:
        Regions of kind FIGURE, none inside another. Logos at the page's edge, backgrounds and ornaments are
        not among them.
    """
    page = size_pt[0] * size_pt[1]
    heaps = [box for box, count in _heaps([*shapes[:_MAX_SHAPES]]) if count >= MIN_SHAPES]
    candidates = _joined([*images, *heaps])
    figures: list[BBox] = []
    for box in sorted(candidates, key=area, reverse=True):
        width, height = box[2] - box[0], box[3] - box[1]
        if width < MIN_SIDE or height < MIN_SIDE or area(box) > BACKGROUND * page:
            continue
        if box[3] < EDGE * size_pt[1] or box[1] > (1 - EDGE) * size_pt[1]:
            continue
        if any(covered(box, other) > 0.5 for other in (*tables, *figures)):
            continue
        figures.append(box)
    return [Region(RegionKind.FIGURE, box, 1.0) for box in figures]


def _centre_in(shape: BBox, box: BBox) -> bool:
    x, y = (shape[0] + shape[2]) / 2, (shape[1] + shape[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _heaps(shapes: list[BBox]) -> list[tuple[BBox, int]]:
    """Paths that lie close together, as one box with their number."""
    heaps: list[tuple[BBox, int]] = []
    for shape in sorted(shapes, key=lambda s: (s[1], s[0])):
        box, count = shape, 1
        rest = []
        for other, number in heaps:
            if _near(other, box):
                box, count = union((box, other)), count + number
            else:
                rest.append((other, number))
        heaps = [*rest, (box, count)]
    return heaps


def _near(a: BBox, b: BBox) -> bool:
    return a[0] - _REACH < b[2] and b[0] - _REACH < a[2] and a[1] - _REACH < b[3] and b[1] - _REACH < a[3]


def _joined(boxes: list[BBox]) -> list[BBox]:
    """Pictures cut into strips or tiles are one picture."""
    return [box for box, _ in _heaps(boxes)] if len(boxes) > 1 else boxes
