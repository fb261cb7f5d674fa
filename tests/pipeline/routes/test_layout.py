"""The layout route: a born-digital page in order, its tables rebuilt, its text as the file has it."""

from __future__ import annotations

from pathlib import Path

import pypdfium2
import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Table as ReportTable

from pipeline.assemble import page_markdown
from pipeline.models import Models
from pipeline.page_model import PageModel
from pipeline.page_source import PageSource
from pipeline.routes import layout
from tests.pipeline.routes.pages import accounts, paragraph, sources
from tests.pipeline.structure.build import grid, texts


def recognised(path: Path, draw: object) -> PageModel:
    return layout.recognise(sources(path, draw)[0], Models(1))  # type: ignore[arg-type]


def test_a_table_without_a_frame_becomes_html_in_its_place(tmp_path: Path) -> None:
    page = recognised(tmp_path, accounts)
    assert [b["type"] for b in page.blocks] == ["text", "table", "text"]
    assert grid(page.blocks[1]["content"]) == [
        ["", "Year Ended", "<"],
        ["", "2024", "2023"],
        ["Revenue", "$ 1,200", "$ 1,100"],
        ["Cost", "$ (700)", "$ (650)"],
        ["Net", "$ 500", "$ 450"],
    ]
    markdown = page_markdown(page)
    assert markdown.index("Before") < markdown.index("1,200") < markdown.index("After")


def test_a_table_with_a_frame_has_the_spans_that_are_drawn(tmp_path: Path) -> None:
    rows = [["flash", "412", "0", "3"], ["layout", "128", "1", "9"], ["ocr", "96", "2", "17"]]

    def draw(canvas: Canvas) -> None:
        table = ReportTable(
            [["Route", "Pages", "", "Warnings"], ["", "complete", "failed", ""], *rows], colWidths=[100] * 4
        )
        spans = [("SPAN", (0, 0), (0, 1)), ("SPAN", (1, 0), (2, 0)), ("SPAN", (3, 0), (3, 1))]
        table.setStyle([("GRID", (0, 0), (-1, -1), 1, "black"), ("VALIGN", (0, 0), (-1, -1), "MIDDLE"), *spans])
        table.wrapOn(canvas, 500, 500)
        table.drawOn(canvas, 60, 500)

    page = recognised(tmp_path, draw)
    assert grid(page.blocks[0]["content"]) == [
        ["Route", "Pages", "<", "Warnings"],
        ["^", "complete", "failed", "^"],
        *rows,
    ]


def test_columns_are_not_mixed(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        for x, names in ((60, ("Alpha", "Beta")), (320, ("Gamma", "Delta"))):
            paragraph(canvas, x, 700, 220, 8, names[0])
            paragraph(canvas, x, 580, 220, 8, names[1])

    said = " ".join(texts(recognised(tmp_path, draw).blocks))
    assert said.index("Alpha") < said.index("Beta") < said.index("Gamma") < said.index("Delta")


def test_superscripts_and_styles_reach_the_markdown(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        text = canvas.beginText(60, 700)
        text.setFont("Helvetica", 12)
        text.textOut("The river is ")
        text.setFont("Helvetica-Bold", 12)
        text.textOut("long")
        text.setFont("Helvetica", 12)
        text.textOut(" and old")
        text.setFont("Helvetica", 7)
        text.setRise(5)
        text.textOut("12")
        canvas.drawText(text)

    assert "The river is **long** and old<sup>12</sup>" in page_markdown(recognised(tmp_path, draw))


def test_a_picture_is_cut_out_where_it_stands(tmp_path: Path) -> None:
    Image.effect_noise((200, 100), 80).convert("RGB").save(tmp_path / "photo.png")

    def draw(canvas: Canvas) -> None:
        paragraph(canvas, 60, 760, 470, 3)
        canvas.drawImage(str(tmp_path / "photo.png"), 100, 560, 300, 150)
        paragraph(canvas, 60, 520, 470, 3)

    page = recognised(tmp_path, draw)
    assert [b["type"] for b in page.blocks] == ["text", "image", "text"]
    assert page.blocks[1]["image_base64"].startswith("data:image/")


def boxes_and_arrows(canvas: Canvas) -> None:
    for number, label in enumerate(("file", "pages", "blocks")):
        x = 60 + 160 * number
        canvas.roundRect(x, 600, 100, 40, 5)
        canvas.drawCentredString(x + 50, 616, label)
        if number < 2:
            canvas.line(x + 102, 620, x + 152, 620)
            arrow = canvas.beginPath()
            arrow.moveTo(x + 158, 620)
            arrow.lineTo(x + 152, 624)
            arrow.lineTo(x + 152, 616)
            arrow.close()
            canvas.drawPath(arrow, fill=1)


@pytest.mark.parametrize("where", [580, 652])
def test_a_drawing_of_few_shapes_with_a_caption_is_a_picture(tmp_path: Path, where: float) -> None:
    def draw(canvas: Canvas) -> None:
        paragraph(canvas, 60, 760, 470, 3)
        boxes_and_arrows(canvas)
        canvas.drawString(60, where, "Figure 1. The way of a page.")
        paragraph(canvas, 60, 520, 470, 3)

    blocks = recognised(tmp_path, draw).blocks
    (picture,) = [b for b in blocks if b["type"] == "image"]
    assert picture["content"].split() == ["file", "pages", "blocks"]
    assert texts(blocks, "caption") == ["Figure 1. The way of a page."]


def test_shapes_without_a_caption_beside_them_are_no_picture(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        paragraph(canvas, 60, 760, 470, 3)
        boxes_and_arrows(canvas)
        paragraph(canvas, 60, 520, 470, 3)
        canvas.drawString(60, 470, "Figure 1. The way of a page.")

    blocks = recognised(tmp_path, draw).blocks
    assert "image" not in {b["type"] for b in blocks}


def test_a_drop_cap_belongs_to_its_word(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Times-Roman", 36)
        canvas.drawString(60, 676, "O")
        canvas.setFont("Times-Roman", 11)
        canvas.drawString(88, 692, "ver the past decades the river has")
        canvas.drawString(88, 680, "changed its course")

    assert "Over the past decades" in page_markdown(recognised(tmp_path, draw))


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_turned_page_reads_like_an_upright_one(tmp_path: Path, rotation: int) -> None:
    upright = texts(recognised(tmp_path, accounts).blocks)
    document = pypdfium2.PdfDocument(tmp_path / "pages.pdf")
    page = document[0]
    # The content is turned one way and the page's own /Rotate turns it back.
    matrix = pypdfium2.PdfMatrix().rotate(rotation, ccw=True)
    for item in page.get_objects(max_depth=1):
        item.transform(matrix)
    left, bottom, right, top = matrix.on_rect(0, 0, *page.get_size())
    page.set_mediabox(left, bottom, right, top)
    page.set_rotation(rotation)
    page.gen_content()
    turned = layout.recognise(PageSource(document, 0), Models(1))
    assert texts(turned.blocks) == upright
    assert (round(turned.width_pt), round(turned.height_pt)) == (595, 842)


def test_a_blank_page_has_no_blocks(tmp_path: Path) -> None:
    assert recognised(tmp_path, lambda canvas: None).blocks == []


def test_real_statements_become_tables(corpus: Path) -> None:
    file = corpus / "text" / "2022_Q3_NVDA.pdf"
    if not file.is_file():
        pytest.skip(f"no {file.name} in the corpus")
    document = pypdfium2.PdfDocument(file)
    (table,) = layout.page_tables(PageSource(document, 2))
    cells = grid(table.html)
    assert {len(row) for row in cells} == {5}
    assert cells[0] == ["", "Three Months Ended", "<", "Nine Months Ended", "<"]


def test_links_reach_the_markdown_and_addresses_stay_as_printed(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 12)
        canvas.drawString(60, 700, "Read the river letters of March, or https://river.example/old today.")
        width = canvas.stringWidth
        start, end = 60 + width("Read the "), 60 + width("Read the river letters")
        canvas.linkURL("https://river.example/letters", (start, 697, end, 711))
        start, end = (
            60 + width("Read the river letters of March, or "),
            60 + width("Read the river letters of March, or https://river.example/old"),
        )
        canvas.linkURL("https://river.example/old", (start, 697, end, 711))

    markdown = page_markdown(recognised(tmp_path, draw))
    assert (
        "Read the [river letters](https://river.example/letters) of March, or https://river.example/old today."
        in markdown
    )
