"""`scan.pdf` and `letter.png`: pages that are pictures, drawn with Pillow in a font that reportlab ships."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import gmtime

import reportlab
from PIL import Image, ImageChops, ImageDraw, ImageFont

from samples import words

DPI = 200
PAGE = (1654, 2339)
"""A4 at DPI, pixels."""
MARGIN = 200
SKEW_DEGREES = 2.0
NOISE = 40
"""How far a pixel of paper may be from white, 0..255."""


def write_scan(path: Path) -> None:
    """Three image-only pages: text upright, a table tilted by SKEW_DEGREES, text turned by a quarter."""
    plain = _text_page(words.SCAN_TITLE, words.SCAN_TEXT)
    tilted = _table_page().rotate(SKEW_DEGREES, Image.Resampling.BICUBIC, fillcolor=255)
    turned = _text_page(words.SCAN_TURNED_TITLE, words.SCAN_TURNED_TEXT).transpose(Image.Transpose.ROTATE_90)
    first, *rest = (_as_scanned(page, seed) for seed, page in enumerate((plain, tilted, turned)))
    epoch = gmtime(0)
    first.save(
        path,
        "PDF",
        save_all=True,
        append_images=rest,
        resolution=DPI,
        quality=70,
        title="Pagemill sample scan",
        creationDate=epoch,
        modDate=epoch,
    )


def write_letter(path: Path) -> None:
    """One clean page as a greyscale PNG with its resolution."""
    page = Image.new("L", PAGE, 255)
    y = MARGIN
    for paragraph in words.LETTER:
        for line in paragraph.split("\n"):
            y = _draw_paragraph(page, line, y)
        y += 40
    page.save(path, "PNG", dpi=(DPI, DPI))


def _text_page(title: str, paragraphs: Sequence[str]) -> Image.Image:
    page = Image.new("L", PAGE, 255)
    y = _draw_title(page, title)
    for paragraph in paragraphs:
        y = _draw_paragraph(page, paragraph, y) + 30
    return page


def _draw_title(page: Image.Image, title: str) -> int:
    ImageDraw.Draw(page).text((MARGIN, MARGIN), title, fill=0, font=_font("VeraBd", 54))
    return MARGIN + 130


def _draw_paragraph(page: Image.Image, text: str, y: int, leading: int = 50) -> int:
    """Set `text` between the margins, ragged right, from `y` on; answer the y below it."""
    font = _font("Vera", 33)
    draw = ImageDraw.Draw(page)
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if font.getlength(longer) > PAGE[0] - 2 * MARGIN:
            draw.text((MARGIN, y), line, fill=0, font=font)
            y += leading
            longer = word
        line = longer
    draw.text((MARGIN, y), line, fill=0, font=font)
    return y + leading


def _table_page() -> Image.Image:
    page = Image.new("L", PAGE, 255)
    draw = ImageDraw.Draw(page)
    top = _draw_title(page, words.SCAN_TABLE_TITLE)
    row_height, column_width = 84, (PAGE[0] - 2 * MARGIN) // len(words.SCAN_TABLE[0])
    right = MARGIN + column_width * len(words.SCAN_TABLE[0])
    bottom = top + row_height * len(words.SCAN_TABLE)
    for row, cells in enumerate(words.SCAN_TABLE):
        font = _font("VeraBd" if row == 0 else "Vera", 33)
        y = top + row * row_height + 22
        for column, cell in enumerate(cells):
            draw.text((MARGIN + column * column_width + 20, y), cell, fill=0, font=font)
    for y in range(top, bottom + 1, row_height):
        draw.line((MARGIN, y, right, y), fill=0, width=3)
    for x in range(MARGIN, right + 1, column_width):
        draw.line((x, top, x, bottom), fill=0, width=3)
    return page


def _as_scanned(page: Image.Image, seed: int) -> Image.Image:
    """Grey paper with grain: the same grain for the same seed."""
    grain = Image.frombytes("L", page.size, random.Random(seed).randbytes(page.width * page.height))
    return ImageChops.subtract(page, grain.point([value * NOISE // 255 for value in range(256)]))


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    path = Path(reportlab.__file__).parent / "fonts" / f"{name}.ttf"
    # The basic layout engine: the other one depends on a library that a machine may lack.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
