"""Images as input: each frame becomes a page of a PDF, pixel for pixel, so that one path serves all."""

from __future__ import annotations

from pathlib import Path

import pypdfium2
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from pipeline import errors
from pipeline.page_source import RENDER_DPI

_FORMATS = ("PNG", "JPEG", "TIFF")


def is_image(path: Path) -> bool:
    """Whether Pillow knows the file as a PNG, JPEG or TIFF."""
    try:
        with Image.open(path, formats=_FORMATS):
            return True
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError, SyntaxError, ValueError):
        return False


def pdf_from_image(path: Path, target: Path, max_pixels: int) -> Path:
    """Write the image's frames as the pages of a PDF.

    A page gets the size at which RENDER_DPI renders the image's own pixels; the resolution an image file
    claims is too often wrong to be used.

    Raises:
        Damaged: Pillow cannot decode it. PageTooBig: a frame has more than `max_pixels`.
    """
    Image.MAX_IMAGE_PIXELS = None  # our own bound below has a typed error
    pdf = pypdfium2.PdfDocument.new()
    try:
        with Image.open(path, formats=_FORMATS) as image:
            for frame in ImageSequence.Iterator(image):
                if frame.width * frame.height > max_pixels:
                    raise errors.PageTooBig(
                        f"The image has {frame.width * frame.height / 1e6:,.0f} megapixels; the limit is "
                        f"{max_pixels / 1e6:,.0f} (PAGEMILL_MAX_PAGE_MEGAPIXELS)."
                    )
                _add_page(pdf, _upright_rgb(frame))
    except (OSError, SyntaxError, ValueError) as error:
        raise errors.Damaged(f"The image is damaged ({error}).") from None
    target.parent.mkdir(parents=True, exist_ok=True)
    pdf.save(target)
    pdf.close()
    return target


def _upright_rgb(frame: Image.Image) -> Image.Image:
    """The frame as a person sees it: turned as its EXIF says, on white where it is transparent, in RGB."""
    upright = ImageOps.exif_transpose(frame)
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        rgba = upright.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    if upright.mode.startswith("I;16") or upright.mode == "I":
        # Pillow clips 16-bit grey to white when it converts; scale it.
        return upright.point(lambda value: value / 256).convert("L").convert("RGB")
    return upright.convert("RGB")


def _add_page(pdf: pypdfium2.PdfDocument, image: Image.Image) -> None:
    # A hair less than the exact size: renderers round up, and would add a row of white.
    width, height = ((side - 0.02) * 72 / RENDER_DPI for side in image.size)
    page = pdf.new_page(width, height)
    picture = pypdfium2.PdfImage.new(pdf)
    bitmap = pypdfium2.PdfBitmap.from_pil(image)
    picture.set_bitmap(bitmap)
    bitmap.close()
    picture.set_matrix(pypdfium2.PdfMatrix().scale(width, height))
    page.insert_obj(picture)
    page.gen_content()
    page.close()
