"""`report.pdf`: a born-digital report of four pages with the parts that a parser has to tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reportlab.graphics.shapes import Drawing, Line, Polygon, Rect, String
from reportlab.lib import colors
from reportlab.lib.enums import TA_CENTER, TA_JUSTIFY
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BalancedColumns,
    BaseDocTemplate,
    Frame,
    ListFlowable,
    ListItem,
    PageBreak,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
    TableStyle,
)

from samples import words

MARGIN = 25 * mm
GUTTER = 8 * mm

BODY = ParagraphStyle("body", fontName="Times-Roman", fontSize=11, leading=14.5, spaceAfter=7, alignment=TA_JUSTIFY)
TITLE = ParagraphStyle("title", fontName="Helvetica-Bold", fontSize=22, leading=27, spaceAfter=14)
HEADING = ParagraphStyle("heading", fontName="Helvetica-Bold", fontSize=14, leading=18, spaceBefore=8, spaceAfter=6)
SUBHEADING = ParagraphStyle("subheading", parent=HEADING, fontSize=12, leading=15)
CAPTION = ParagraphStyle("caption", fontName="Times-Italic", fontSize=10, leading=13, spaceAfter=8)
FORMULA = ParagraphStyle(
    "formula",
    fontName="Times-Italic",
    fontSize=13,
    leading=20,
    spaceBefore=6,
    spaceAfter=12,
    alignment=TA_CENTER,
)


def write_report(path: Path) -> None:
    """Write the report to `path`."""
    width, height = A4
    text_width, text_height = width - 2 * MARGIN, height - 2 * MARGIN
    frame = Frame(MARGIN, MARGIN, text_width, text_height, 0, 0, 0, 0, id="body")
    document = BaseDocTemplate(
        str(path),
        pagesize=A4,
        title=words.TITLE,
        author="Pagemill",
        invariant=1,
        pageTemplates=[PageTemplate("page", [frame], onPage=_draw_margins)],
    )
    document.build(_story(text_width))


def _draw_margins(canvas: Canvas, document: BaseDocTemplate) -> None:
    width, height = A4
    canvas.saveState()
    canvas.setFont("Helvetica", 8.5)
    canvas.drawString(MARGIN, height - 14 * mm, words.RUNNING_HEADER)
    canvas.drawCentredString(width / 2, 13 * mm, str(document.page))
    canvas.restoreState()


def _story(text_width: float) -> list[Any]:
    return [
        *_opening_page(text_width),
        PageBreak(),
        *_columns_page(),
        PageBreak(),
        *_tables_page(text_width),
        PageBreak(),
        *_closing_page(),
    ]


def _opening_page(text_width: float) -> list[Any]:
    bullets = [ListItem(Paragraph(route, BODY)) for route in words.ROUTES]
    return [
        Paragraph(words.TITLE, TITLE),
        Paragraph(words.ABSTRACT, BODY),
        Paragraph("1. From file to page", HEADING),
        *[Paragraph(text, BODY) for text in words.OPENING],
        Paragraph(words.ROUTES_INTRO, BODY),
        ListFlowable(bullets, bulletType="bullet", start="•", leftIndent=16, bulletFontSize=11),
        Spacer(0, 8),
        _figure(text_width),
        Paragraph(words.FIGURE_CAPTION, CAPTION),
    ]


def _figure(width: float) -> Drawing:
    """Five boxes in a row, joined by arrows."""
    labels = ("file", "pages", "route", "blocks", "Markdown")
    height, box_height = 92.0, 42.0
    gap = 22.0
    box_width = (width - gap * (len(labels) - 1)) / len(labels)
    middle = height / 2
    drawing = Drawing(width, height)
    ink = colors.darkslategray
    for index, label in enumerate(labels):
        x = index * (box_width + gap)
        centre = x + box_width / 2
        shade = colors.Color(0.93 - 0.1 * index, 0.96 - 0.06 * index, 1.0 - 0.03 * index)
        drawing.add(
            Rect(
                x,
                middle - box_height / 2,
                box_width,
                box_height,
                rx=5,
                ry=5,
                fillColor=shade,
                strokeColor=ink,
            )
        )
        drawing.add(String(centre, middle - 4, label, fontName="Helvetica", fontSize=11, textAnchor="middle"))
        if index + 1 < len(labels):
            start, end = x + box_width + 2, x + box_width + gap - 2
            drawing.add(Line(start, middle, end - 5, middle, strokeColor=ink))
            drawing.add(Polygon([end, middle, end - 6, middle + 4, end - 6, middle - 4], fillColor=ink))
    return drawing


def _columns_page() -> list[Any]:
    flow: list[Any] = []
    for heading, *paragraphs in words.COLUMNS:
        flow.append(Paragraph(heading, SUBHEADING))
        flow += [Paragraph(text, BODY) for text in paragraphs]
    return [
        Paragraph("2. What a page is made of", HEADING),
        BalancedColumns(flow, nCols=2, innerPadding=GUTTER, spaceBefore=4),
    ]


def _tables_page(text_width: float) -> list[Any]:
    return [
        Paragraph("3. Tables", HEADING),
        Paragraph(words.TABLES_INTRO, BODY),
        Paragraph(words.RULED_TITLE, CAPTION),
        _ruled_table(text_width),
        Spacer(0, 16),
        Paragraph(words.BETWEEN_TABLES, BODY),
        Paragraph(words.UNRULED_TITLE, CAPTION),
        _unruled_table(text_width),
    ]


def _ruled_table(text_width: float) -> Table:
    table = Table(words.RULED_TABLE, colWidths=[text_width / 4] * 4, rowHeights=20)
    table.setStyle(
        TableStyle([
            ("FONT", (0, 0), (-1, -1), "Helvetica", 10),
            ("FONT", (0, 0), (-1, 1), "Helvetica-Bold", 10),
            ("GRID", (0, 0), (-1, -1), 0.8, colors.black),
            ("SPAN", (0, 0), (0, 1)),
            ("SPAN", (1, 0), (2, 0)),
            ("SPAN", (3, 0), (3, 1)),
            ("ALIGN", (1, 0), (-1, -1), "CENTER"),
            ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
        ])
    )  # fmt: skip
    return table


def _unruled_table(text_width: float) -> Table:
    table = Table(words.UNRULED_TABLE, colWidths=[text_width * 0.56, text_width * 0.22, text_width * 0.22])
    bold = [("FONT", (0, row), (-1, row), "Times-Bold", 11) for row in (0, 3, 7)]
    table.setStyle(
        TableStyle([
            ("FONT", (0, 0), (-1, -1), "Times-Roman", 11),
            *bold,
            ("ALIGN", (1, 0), (-1, -1), "RIGHT"),
            ("LEFTPADDING", (0, 0), (0, -1), 0),
        ])
    )  # fmt: skip
    return table


def _closing_page() -> list[Any]:
    formula = "T(n, w) = a + n (r + b) / w<super>0.9</super>"
    return [
        Paragraph("4. A formula", HEADING),
        Paragraph(words.FORMULA_INTRO, BODY),
        Paragraph(formula, FORMULA),
        Paragraph(words.FORMULA_OUTRO, BODY),
        Paragraph("5. Closing remark", HEADING),
        Paragraph(words.CLOSING, BODY),
    ]
