"""Pages for the tests of the vlm route: drawn, and what a model would see on them."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pypdfium2
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from tests.documents import drawn_pdf
from tests.pipeline.routes.pages import paragraph
from tests.pipeline.routes.scripted_vlm import Block, How, Page

HEIGHT = 841.89
ROWS = (("Mill", "Wheels", "Grain"), ("Upper", "3", "412"), ("Lower", "5", "1280"), ("Weir", "2", "96"))
OTSL = "".join("".join(f"<fcel>{cell}" for cell in row) + "<nl>" for row in ROWS)
LATEX = r"\frac { a + b } { c }"


def report(canvas: Canvas) -> None:
    """A title, a paragraph, a framed table, a stacked formula, a picture with a caption, a page number."""
    canvas.setFont("Helvetica-Bold", 20)
    canvas.drawString(60, HEIGHT - 80, "Mills of the valley")
    paragraph(canvas, 60, HEIGHT - 115, 470, 5, "Opening")
    canvas.setFont("Helvetica", 10)
    for number, row in enumerate(ROWS):
        for column, cell in enumerate(row):
            canvas.rect(60 + 120 * column, HEIGHT - 230 - 20 * number, 120, 20)
            canvas.drawString(66 + 120 * column, HEIGHT - 224 - 20 * number, cell)
    canvas.drawString(280, HEIGHT - 338, "a + b")
    canvas.line(276, HEIGHT - 343, 312, HEIGHT - 343)
    canvas.drawString(290, HEIGHT - 354, "c")
    picture = Image.effect_noise((240, 120), 90).convert("RGB")
    canvas.drawImage(ImageReader(picture), 150, HEIGHT - 520, 300, 130)
    canvas.drawString(200, HEIGHT - 540, "Figure 1. Grain of the film.")
    paragraph(canvas, 60, HEIGHT - 580, 470, 4, "Closing")
    canvas.drawString(295, 30, "7")


BLOCKS = (
    Block("title", (55, 60, 300, 88), "Mills of the valley"),
    Block("text", (55, 100, 540, 172), "Opening the river runs along the valley"),
    Block("table", (58, 208, 422, 292), OTSL),
    Block("equation", (270, 324, 320, 360), LATEX),
    Block("image", (150, 390, 450, 520)),
    Block("image_caption", (195, 528, 345, 546), "Figure 1. Grain of the film."),
    Block("text", (55, 570, 540, 626), "Closing the river runs along the valley"),
    Block("page_number", (288, 800, 306, 816), "7"),
)
REPORT = Page(BLOCKS)


def with_block(kind: str, **changes: object) -> Page:
    """The report, one of its blocks changed."""
    return Page(tuple(replace(b, **changes) if b.kind == kind else b for b in BLOCKS))  # type: ignore[arg-type]


def prose(word: str) -> Callable[[Canvas], None]:
    return lambda canvas: paragraph(canvas, 60, 760, 470, 20, word)


def scan_of(pdf: Path, path: Path) -> Path:
    """The same pages as pictures, without text."""
    document = pypdfium2.PdfDocument(pdf)
    pictures = [page.render(scale=200 / 72).to_pil().convert("RGB") for page in document]

    def page(picture: Image.Image) -> Callable[[Canvas], None]:
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        return lambda canvas: canvas.drawImage(ImageReader(io.BytesIO(buffer.getvalue())), 0, 0, 595.28, HEIGHT)

    return drawn_pdf(path, [page(picture) for picture in pictures])


__all__ = ["BLOCKS", "LATEX", "OTSL", "REPORT", "ROWS", "How", "prose", "report", "scan_of", "with_block"]
