"""Born-digital pages that the route tests draw for themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pypdfium2
from reportlab.pdfgen.canvas import Canvas

from pipeline.page_source import PageSource
from tests.documents import drawn_pdf

WORDS = ["the", "river", "runs", "along", "the", "valley", "and", "turns", "to", "the", "south", "where", "mills"]


def sources(path: Path, *pages: Callable[[Canvas], None]) -> list[PageSource]:
    """The pages drawn into one document, opened."""
    document = pypdfium2.PdfDocument(drawn_pdf(path / "pages.pdf", pages))
    return [PageSource(document, index) for index in range(len(document))]


def paragraph(canvas: Canvas, x: float, y: float, width: float, lines: int, first: str = "") -> None:
    """Justified lines of 10 points; the first word can be named, to be looked for."""
    at = 0
    for number in range(lines):
        text = [first] if first and number == 0 else []
        while canvas.stringWidth(" ".join(text), "Helvetica", 10) < width - 40:
            text.append(WORDS[at % len(WORDS)])
            at += 1
        spare = width - canvas.stringWidth(" ".join(text), "Helvetica", 10)
        line = canvas.beginText(x, y - 12 * number)
        line.setFont("Helvetica", 10)
        line.setWordSpace(spare / (len(text) - 1))
        line.textOut(" ".join(text))
        canvas.drawText(line)


def accounts(canvas: Canvas) -> None:
    """A paragraph, a table without a frame, a paragraph."""
    paragraph(canvas, 60, 760, 470, 3, "Before")
    canvas.setFont("Helvetica-Bold", 9)
    canvas.drawCentredString(440, 690, "Year Ended")
    canvas.drawRightString(420, 676, "2024")
    canvas.drawRightString(500, 676, "2023")
    canvas.setFont("Helvetica", 9)
    for number, (label, a, b) in enumerate(
        (("Revenue", "1,200", "1,100"), ("Cost", "(700)", "(650)"), ("Net", "500", "450"))
    ):
        y = 662 - 13 * number
        canvas.drawString(60, y, label)
        for x, value in ((420, a), (500, b)):
            canvas.drawString(x - 50, y, "$")
            canvas.drawRightString(x, y, value)
    paragraph(canvas, 60, 600, 470, 3, "After")
