"""Figures of a scanned page: which regions are pictures, which are the sheet itself, which the layout missed.

The layout model knows the figures of articles. It takes posters and handwritten sheets for one figure, and
overlooks drawings among text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from pipeline.ocr.sizes import hard_to_read
from pipeline.page_model import BBox, Region, RegionKind, TextLine
from pipeline.structure.geometry import area, covered

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORKING_SCALE = 0.75
"""Pixels per point at which ink is looked for: one pixel is a third of a line of text."""

SHEET = 0.6
"""Share of the page from which a figure may be the sheet on which the text stands."""

WIDE = 0.25
"""Share of the page's width from which a line of several words reads as text rather than as a label."""

PICTURED = 0.4
"""Share of a sheet that must differ from its paper for the sheet to be a picture."""

MIN_FIGURE = 0.04
MIN_SIDE = 60.0
"""A missed figure has this share of the page's area and this many points on its shorter side."""

MIN_INK = 0.06
CONTRAST = 28
"""Share of a missed figure's pixels that differ from the paper by this many of 255 steps."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The regions to go on with, and the box of the picture that lies under the whole page, if any."""

    regions: tuple[Region, ...]
    backdrop: BBox | None


def sort_figures(image: Image.Image, lines: Sequence[TextLine], regions: Sequence[Region], scale: float) -> Figures:
    """Take sheets out of the regions and put missed figures in.

    Args:
        image: the straightened page, RGB.
        lines: its text, points.
        regions: what the layout model saw, points.
        scale: pixels per point of `image`.
    """
    page = (0.0, 0.0, image.width / scale, image.height / scale)
    if min(page[2:]) < MIN_SIDE:
        return Figures(tuple(regions), None)
    ink, factor = _ink(image, scale)
    kept: list[Region] = []
    backdrop: BBox | None = None
    for region in regions:
        if region.kind is RegionKind.FIGURE and area(region.bbox) >= SHEET * area(page):
            inside = [line for line in lines if covered(line.bbox, region.bbox) > 0.5]
            if _reads_as_page(inside, page[2]) or (len(inside) >= 3 and hard_to_read(inside)):
                if _share(ink, region.bbox, factor) >= PICTURED:
                    backdrop = region.bbox
                continue
        kept.append(region)
    if backdrop is None and not hard_to_read(lines):
        # On a written sheet what could not be read as text would pass for a drawing.
        kept += _missed(ink, factor, lines, kept, page)
    return Figures(tuple(kept), backdrop)


def _ink(image: Image.Image, scale: float) -> tuple[NDArray[np.uint8], float]:
    """1 where a small picture of the page differs from its paper, and its pixels per point."""
    import cv2
    import numpy as np

    factor = min(scale, WORKING_SCALE)
    size = max(1, round(image.width * factor / scale)), max(1, round(image.height * factor / scale))
    small = np.asarray(image.resize(size, Image.Resampling.BOX, reducing_gap=2.0)).astype(np.int16)
    # Paper is the page's most frequent colour, which may be yellow, grey or black.
    levels = (small >> 4).reshape(-1, 3)
    codes = (levels[:, 0] << 8) | (levels[:, 1] << 4) | levels[:, 2]
    commonest = np.bincount(codes).argmax()
    paper = np.median(small.reshape(-1, 3)[codes == commonest], axis=0)
    differs = np.abs(small - paper).max(axis=2) > CONTRAST
    return cv2.medianBlur(differs.astype(np.uint8), 3), factor


def _reads_as_page(lines: Sequence[TextLine], width: float) -> bool:
    """Whether most of the text stands in wide lines of several words, as on a poster or a sheet of notes."""
    characters = sum(len(line.text) for line in lines)
    wide = sum(len(line.text) for line in lines if len(line.words) >= 2 and line.bbox[2] - line.bbox[0] >= WIDE * width)
    return 2 * wide >= characters > 0


def _share(ink: NDArray[np.uint8], bbox: BBox, factor: float) -> float:
    x0, y0, x1, y1 = (round(v * factor) for v in bbox)
    part = ink[max(0, y0) : y1, max(0, x0) : x1]
    return float(part.mean()) if part.size else 0.0


def _missed(
    ink: NDArray[np.uint8], factor: float, lines: Sequence[TextLine], regions: Sequence[Region], page: BBox
) -> list[Region]:
    """Large inked areas that are neither text nor part of a region that is set."""
    import cv2
    import numpy as np

    free = ink.copy()
    solid = [r.bbox for r in regions if r.kind in (RegionKind.FIGURE, RegionKind.TABLE, RegionKind.EQUATION)]
    for box in [line.bbox for line in lines if _is_sure(line)] + solid:
        x0, y0, x1, y1 = (round(v * factor) for v in (box[0] - 2, box[1] - 2, box[2] + 2, box[3] + 2))
        free[max(0, y0) : y1, max(0, x0) : x1] = 0
    reach = max(3, round(8 * factor)) | 1
    closed = cv2.morphologyEx(free, cv2.MORPH_CLOSE, np.ones((reach, reach), np.uint8))
    # Rules and stray strokes go; what is broad in both directions stays.
    broad = max(3, round(12 * factor))
    closed = cv2.morphologyEx(closed, cv2.MORPH_OPEN, np.ones((broad, broad), np.uint8))
    count, _, stats, _ = cv2.connectedComponentsWithStats(closed, connectivity=8)
    found = []
    for x, y, width, height, _ in stats[1:count]:
        box = (x / factor, y / factor, (x + width) / factor, (y + height) / factor)
        text = sum(area(line.bbox) for line in lines if _is_sure(line) and covered(line.bbox, box) > 0.5)
        if (
            area(box) >= MIN_FIGURE * area(page)
            and min(box[2] - box[0], box[3] - box[1]) >= MIN_SIDE
            and area(box) < SHEET * area(page)
            and _share(free, box, factor) >= MIN_INK
            and text < 0.2 * area(box)
            and not _spans(box, page)
        ):
            found.append(Region(RegionKind.FIGURE, box, 0.5))
    return found


def _spans(box: BBox, page: BBox) -> bool:
    """Whether a box runs from edge to edge: the decoration of a slide, the shadow of a scanner's lid."""
    margin_x, margin_y = 0.01 * page[2], 0.01 * page[3]
    across = box[0] <= margin_x and box[2] >= page[2] - margin_x
    return across or (box[1] <= margin_y and box[3] >= page[3] - margin_y)


def _is_sure(line: TextLine) -> bool:
    """Text, rather than strokes of a drawing that look like some."""
    return line.score >= 0.8 and (len(line.text) >= 4 or line.score >= 0.95)
