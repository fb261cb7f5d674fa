"""Pages that the tests draw for themselves, in a font that reportlab ships."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pypdfium2
import reportlab
from PIL import Image, ImageDraw, ImageFont

from pipeline.page_source import PageSource

DPI = 150
SCALE = DPI / 72
PAGE = (1240, 1754)
"""A4 at DPI, pixels."""

SENTENCES = (
    "The committee met on the third of March in the small",
    "reading room. Seven members were present and two had",
    "sent their regrets. The minutes of the last meeting were",
    "read and accepted without a change by all who came.",
)


@cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """A sans serif of `size` pixels."""
    path = Path(reportlab.__file__).parent / "fonts" / ("VeraBd.ttf" if bold else "Vera.ttf")
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def page(
    lines: tuple[str, ...] = SENTENCES, *, at: tuple[int, int] = (150, 200), size: int = 26, leading: int = 40
) -> Image.Image:
    """Lines of text on white A4."""
    image = Image.new("RGB", PAGE, "white")
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((at[0], at[1] + number * leading), line, fill="black", font=font(size))
    return image


def framed_table(image: Image.Image, rows: list[list[str]], at: tuple[int, int], cell: tuple[int, int]) -> None:
    """Draw a table with every rule; a cell of "<" joins the one on its left, one of "^" the one above."""
    draw = ImageDraw.Draw(image)
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            x, y = at[0] + c * cell[0], at[1] + r * cell[1]
            if text not in ("<", "^"):
                draw.text((x + 12, y + cell[1] // 4), text, fill="black", font=font(24))
            if text != "<":
                draw.line((x, y, x, y + cell[1]), fill="black", width=2)
            if text != "^":
                draw.line((x, y, x + cell[0], y), fill="black", width=2)
    right, bottom = at[0] + len(rows[0]) * cell[0], at[1] + len(rows) * cell[1]
    draw.line((right, at[1], right, bottom), fill="black", width=2)
    draw.line((at[0], bottom, right, bottom), fill="black", width=2)


def source(image: Image.Image, dpi: float = DPI) -> PageSource:
    """The image as the one page of a PDF."""
    buffer = io.BytesIO()
    image.save(buffer, "PDF", resolution=dpi)
    return PageSource(pypdfium2.PdfDocument(buffer.getvalue()), 0)
