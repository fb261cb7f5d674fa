"""Draws one page of a document as a picture. Runs in a page process: the bytes are not to be trusted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadPageRange

_JPEG_QUALITY = 85


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """A picture to make.

    Attributes:
        path: the input, a PDF or an image.
        scratch: a folder for the PDF made of an input image.
        password: that opens an encrypted PDF.
        page: counts from 1.
        width: of the picture, pixels.
        rotation: quarter turns to apply, degrees clockwise, so that the page is upright as its blocks are.
        image_format: "jpeg" or "png".
        max_pixels: bound on the picture; a larger one is made smaller.
    """

    path: str
    scratch: str
    password: str | None
    page: int
    width: int
    rotation: int
    image_format: str
    max_pixels: int


def render_page(request: RenderRequest) -> Iterator[bytes]:
    """Yield the picture's bytes.

    Raises:
        PipelineError: as `pipeline.open` does; BadPageRange where there is no such page.
    """
    import pypdfium2

    from pipeline.images import is_image, pdf_from_image
    from pipeline.open import open_pdf

    path = Path(request.path)
    if is_image(path):
        path = pdf_from_image(path, Path(request.scratch) / "source.pdf", 4 * request.max_pixels)
    document = open_pdf(path, request.password)
    try:
        if not 1 <= request.page <= len(document):
            raise BadPageRange(f"There is no page {request.page}: the document has {len(document)}.")
        try:
            page = document[request.page - 1]
            width, height = page.get_size()
            if request.rotation % 180:
                width, height = height, width
            scale = min(request.width / max(1.0, width), (request.max_pixels / max(1.0, width * height)) ** 0.5)
            bitmap = page.render(scale=scale, rotation=request.rotation, may_draw_forms=True)
        except pypdfium2.PdfiumError as error:
            raise BadPageRange(f"Page {request.page} cannot be drawn ({error}).") from None
        picture = bitmap.to_pil().convert("RGB")
        buffer = io.BytesIO()
        picture.save(buffer, request.image_format.upper(), quality=_JPEG_QUALITY, optimize=False)
        yield buffer.getvalue()
    finally:
        document.close()


@dataclass(frozen=True, slots=True)
class MarkdownRequest:
    """A stored page (`pages/00001.json` of its job) whose Markdown is wanted."""

    page: str


def page_markdown(request: MarkdownRequest) -> Iterator[str]:
    """Yield the Markdown of one page by itself."""
    import json

    from pipeline import assemble
    from pipeline.page_model import PageModel

    yield assemble.page_markdown(PageModel(**json.loads(request.page)["page"]))
