"""What is drawn on a page besides its text: rules, boxes, pictures. From pdfium's page objects."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium_c

from pipeline.characters import view_transform
from pipeline.page_model import BBox

MAX_OBJECTS = 20_000
"""Objects looked at; a page with more is a drawing, whatever the rest of it is."""

RULE_THICKNESS = 2.5
"""Points up to which a filled or stroked shape is a rule."""

_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Drawings:
    """Boxes in points of the page as displayed.

    Attributes:
        horizontal, vertical: thin straight lines, drawn as lines or as thin boxes.
        boxes: larger plain rectangles (cell shading, cards, frames).
        shapes: every other path: curves, arrows, plots.
        images: raster pictures.
    """

    horizontal: tuple[BBox, ...]
    vertical: tuple[BBox, ...]
    boxes: tuple[BBox, ...]
    shapes: tuple[BBox, ...]
    images: tuple[BBox, ...]


def read_drawings(page: pypdfium2.PdfPage) -> Drawings:
    """List the rules, boxes and pictures of `page`."""
    found: dict[str, list[BBox]] = {"horizontal": [], "vertical": [], "boxes": [], "shapes": [], "images": []}
    width, height = page.get_size()
    for kind, bbox in _objects(page):
        x0, y0 = max(0.0, bbox[0]), max(0.0, bbox[1])
        x1, y1 = min(width, bbox[2]), min(height, bbox[3])
        if x1 < x0 or y1 < y0:
            continue
        found[kind].append((x0, y0, x1, y1))
    return Drawings(**{kind: tuple(boxes) for kind, boxes in found.items()})


def _objects(page: pypdfium2.PdfPage) -> Iterator[tuple[str, BBox]]:
    to_view = view_transform(page)
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    budget = MAX_OBJECTS
    stack: list[tuple[object, int, tuple[float, ...], int]] = [(page.raw, 0, (1, 0, 0, 1, 0, 0), -1)]
    while stack and budget > 0:
        container, depth, matrix, _ = stack.pop()
        if depth == 0:
            count, get = pdfium_c.FPDFPage_CountObjects(container), pdfium_c.FPDFPage_GetObject
        else:
            count, get = pdfium_c.FPDFFormObj_CountObjects(container), pdfium_c.FPDFFormObj_GetObject
        for index in range(min(count, budget)):
            budget -= 1
            item = get(container, index)
            kind = pdfium_c.FPDFPageObj_GetType(item)
            if kind == pdfium_c.FPDF_PAGEOBJ_FORM and depth < _MAX_DEPTH:
                own = pdfium_c.FS_MATRIX()
                if pdfium_c.FPDFPageObj_GetMatrix(item, own):
                    inner = (own.a, own.b, own.c, own.d, own.e, own.f)
                    stack.append((item, depth + 1, _multiply(inner, matrix), index))
                continue
            if kind not in (pdfium_c.FPDF_PAGEOBJ_PATH, pdfium_c.FPDF_PAGEOBJ_IMAGE):
                continue
            if not pdfium_c.FPDFPageObj_GetBounds(item, left, bottom, right, top):
                continue
            bbox = to_view(*_apply(matrix, (left.value, bottom.value, right.value, top.value)))
            if kind == pdfium_c.FPDF_PAGEOBJ_IMAGE:
                yield "images", bbox
            else:
                name = _path_kind(item, bbox)
                if name:
                    yield name, bbox


def _path_kind(item: object, bbox: BBox) -> str | None:
    fill = ctypes.c_int()
    stroke = ctypes.c_int()
    pdfium_c.FPDFPath_GetDrawMode(item, fill, stroke)
    if not fill.value and not stroke.value:
        return None
    width, height = bbox[2] - bbox[0], bbox[3] - bbox[1]
    segments = pdfium_c.FPDFPath_CountSegments(item)
    if segments > 8:
        return "shapes"
    if height <= RULE_THICKNESS and width > 3 * height:
        return "horizontal"
    if width <= RULE_THICKNESS and height > 3 * width:
        return "vertical"
    for index in range(segments):
        if (
            pdfium_c.FPDFPathSegment_GetType(pdfium_c.FPDFPath_GetPathSegment(item, index))
            == pdfium_c.FPDF_SEGMENT_BEZIERTO
        ):
            return "shapes"
    return "boxes" if segments >= 4 else "shapes"


def _multiply(inner: tuple[float, ...], outer: tuple[float, ...]) -> tuple[float, ...]:
    a, b, c, d, e, f = inner
    oa, ob, oc, od, oe, of = outer
    return (
        a * oa + b * oc,
        a * ob + b * od,
        c * oa + d * oc,
        c * ob + d * od,
        e * oa + f * oc + oe,
        e * ob + f * od + of,
    )


def _apply(matrix: tuple[float, ...], box: tuple[float, float, float, float]) -> BBox:
    a, b, c, d, e, f = matrix
    xs = [a * x + c * y + e for x in (box[0], box[2]) for y in (box[1], box[3])]
    ys = [b * x + d * y + f for x in (box[0], box[2]) for y in (box[1], box[3])]
    return (min(xs), min(ys), max(xs), max(ys))
