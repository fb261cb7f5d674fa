"""Small documents that the tests make for themselves."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pypdfium2
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

SENTENCE = "The quick brown fox jumps over the lazy dog and the river runs on"


def text_pdf(path: Path, pages: int = 1, *, password: str | None = None) -> Path:
    """Born-digital pages, each with a heading `Chapter N` and a paragraph that names its page."""

    def draw(canvas: Canvas, number: int) -> None:
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawString(72, 760, f"Chapter {number}")
        canvas.setFont("Helvetica", 11)
        for line in range(12):
            canvas.drawString(72, 730 - 14 * line, f"{SENTENCE}, page {number} line {line + 1}.")

    return drawn_pdf(
        path, [lambda canvas, n=number: draw(canvas, n) for number in range(1, pages + 1)], password=password
    )


def drawn_pdf(path: Path, pages: Sequence[Callable[[Canvas], None]], *, password: str | None = None) -> Path:
    """A PDF whose pages are drawn by the given functions, A4, the same bytes each time."""
    canvas = Canvas(str(path), pagesize=A4, invariant=1, encrypt=password)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return path


def sized_pdf(path: Path, sizes: Sequence[tuple[float, float]]) -> Path:
    """Blank pages of the given sizes in points."""
    pdf = pypdfium2.PdfDocument.new()
    for width, height in sizes:
        pdf.new_page(width, height)
    pdf.save(path)
    pdf.close()
    return path


def raw_pdf(objects: Sequence[bytes]) -> bytes:
    """A PDF of the given objects, numbered from 1 (the first is the catalogue), with a right cross-reference table."""
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for offset in offsets:
        out.write(b"%010d 00000 n \n" % offset)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start))
    return out.getvalue()


def pdf_with_a_broken_page(path: Path) -> Path:
    """Three pages; the middle one is not a page object at all."""
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents 6 0 R /Resources << /Font << /F 7 0 R >> >> >>"
    )
    words = b"BT /F 12 Tf 40 200 Td (A sound page between trouble and peace) Tj ET"
    path.write_bytes(
        raw_pdf(
            [
                b"<< /Type /Catalog /Pages 2 0 R >>",
                b"<< /Type /Pages /Count 3 /Kids [3 0 R 4 0 R 5 0 R] >>",
                page,
                b"(this is no page)",
                page,
                b"<< /Length %d >>\nstream\n%s\nendstream" % (len(words), words),
                b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            ]
        )
    )
    return path
