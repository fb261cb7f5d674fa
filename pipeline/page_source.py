"""One open page of a PDF: its size, its pixels, its own text. Lives inside a page process only."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cached_property

import pypdfium2
from PIL import Image

from pipeline.drawings import Drawings, read_drawings
from pipeline.text_layer import TextLayer, read_text_layer

RENDER_DPI = 200
"""Resolution of page images; what MinerU's models and PP-OCR are tuned for."""

MAX_RENDER_PIXELS = 40_000_000
"""Upper bound on the pixels of one rendered page (about 120 MB as RGB). A larger page is rendered coarser."""


class PageSource:
    """A page and what can be read from it, each computed at most once.

    Not thread-safe (pdfium is not). Close the document, not the page.
    """

    def __init__(self, document: pypdfium2.PdfDocument, index: int) -> None:
        self.document = document
        self.index = index
        self.page = document[index]

    @property
    def size_pt(self) -> tuple[float, float]:
        """Width and height of the page as displayed, in points."""
        return self.page.get_size()

    @property
    def render_scale(self) -> float:
        """Pixels per point of `image`: RENDER_DPI, less where the page would exceed MAX_RENDER_PIXELS."""
        width, height = self.size_pt
        wanted = RENDER_DPI / 72
        affordable = (MAX_RENDER_PIXELS / max(1.0, width * height)) ** 0.5
        return min(wanted, affordable)

    @cached_property
    def image(self) -> Image.Image:
        """The page as displayed, RGB, on white."""
        bitmap = self.page.render(scale=self.render_scale, may_draw_forms=True)
        try:
            return bitmap.to_pil().convert("RGB")
        finally:
            bitmap.close()

    @cached_property
    def text(self) -> TextLayer:
        """What the page's text layer says."""
        return read_text_layer(self.page)

    @cached_property
    def drawings(self) -> Drawings:
        """The rules, boxes and pictures on the page."""
        return read_drawings(self.page)

    def release(self) -> None:
        """Forget the page's pixels; they are rendered again if they are asked for again."""
        self.__dict__.pop("image", None)


def extract_pages(document: pypdfium2.PdfDocument, indices: Sequence[int]) -> bytes:
    """The named pages (0-based) as a PDF of their own, in that order."""
    subset = pypdfium2.PdfDocument.new()
    try:
        subset.import_pages(document, list(indices))
        buffer = io.BytesIO()
        subset.save(buffer)
        return buffer.getvalue()
    finally:
        subset.close()
