"""The named types that travel between the parts of a page's life.

Boxes are `(x0, y0, x1, y1)`, origin top left. Everything here is in *page points* (1/72 inch) of the
upright page, that is after the page's own /Rotate and after any quarter turn that a route applied, except
the `bbox` inside a block, which MinerU wants in unit coordinates (0..1 of the page's width and height).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

BBox: TypeAlias = tuple[float, float, float, float]

Block: TypeAlias = dict[str, Any]
"""One block of MinerU's page model: `type`, `bbox` (unit coordinates), `content` and, for text, `lines`.

It is MinerU's own format (docvortex.schema, "docvortex.model" 2.0), kept as it is, so that MinerU's
post-processing and renderers serve every route. Types in use: doc_title, paragraph_title, text, ref_text,
list, table, image, equation, code, caption, footnote, header, footer, page_number, page_footnote,
aside_text.
"""


class Route(StrEnum):
    """How a page is recognised. `AUTO` is a request only: a finished page names one of the others."""

    AUTO = "auto"
    FLASH = "flash"
    LAYOUT = "layout"
    OCR = "ocr"
    VLM = "vlm"


class Quality(StrEnum):
    """Which OCR models: tiny (fast) or small (about three times slower, a little better)."""

    STANDARD = "standard"
    HIGH = "high"


class RegionKind(StrEnum):
    """What the layout model can tell apart (the ten classes of CDLA)."""

    TEXT = "text"
    TITLE = "title"
    FIGURE = "figure"
    FIGURE_CAPTION = "figure_caption"
    TABLE = "table"
    TABLE_CAPTION = "table_caption"
    HEADER = "header"
    FOOTER = "footer"
    REFERENCE = "reference"
    EQUATION = "equation"


@dataclass(frozen=True, slots=True)
class Region:
    """One area that the layout model found. `score` is its confidence, 0..1."""

    kind: RegionKind
    bbox: BBox
    score: float


@dataclass(frozen=True, slots=True)
class Word:
    """Characters without a space between them."""

    text: str
    bbox: BBox


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of text within one column, from the PDF's text layer or from OCR.

    Attributes:
        text: the line, words separated by one space.
        bbox: page points, upright page.
        words: never empty.
        score: recognition confidence, 0..1; 1.0 for a text layer.
        font_size: points; for OCR an estimate from the line's height.
        bold: None where it is not known (OCR).
    """

    text: str
    bbox: BBox
    words: tuple[Word, ...]
    score: float = 1.0
    font_size: float = 0.0
    bold: bool | None = None


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """Which route a page takes, and the reason in a few words for the manifest."""

    route: Route
    why: str


@dataclass(slots=True)
class PageModel:
    """What a route makes of one page.

    Attributes:
        blocks: in reading order; visual blocks carry `image_base64` (a data URI) until the page is stored.
        width_pt, height_pt: size of the upright page in points.
        rotation: quarter turns applied to make the page upright, degrees clockwise (0, 90, 180, 270).
        warnings: what a reader of the result should know, one sentence each.
    """

    blocks: list[Block]
    width_pt: float
    height_pt: float
    rotation: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Table:
    """A recognised table: its place on the page (points) and its HTML (`<table>...</table>`, with spans)."""

    bbox: BBox
    html: str


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell of a grid: its place (0-based), its spans, its box in the units of whoever made the grid."""

    row: int
    column: int
    row_span: int
    column_span: int
    bbox: BBox


@dataclass(frozen=True, slots=True)
class TableGrid:
    """A table's grid before its text. `score` is the confidence in it, 0..1."""

    rows: int
    columns: int
    cells: tuple[TableCell, ...]
    score: float
