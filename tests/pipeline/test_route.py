"""AUTO sends each page where it is read best, and says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from pipeline.page_model import Route
from pipeline.route import choose
from tests.pipeline.routes.pages import accounts, paragraph, sources


@pytest.fixture
def photo(tmp_path: Path) -> str:
    Image.effect_noise((60, 80), 80).convert("RGB").save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


def route(path: Path, draw: Callable[[Canvas], None]) -> Route:
    decision = choose(sources(path, draw)[0])
    assert decision.why
    return decision.route


def test_typed_text_needs_no_ocr(tmp_path: Path) -> None:
    assert route(tmp_path, lambda canvas: paragraph(canvas, 60, 700, 400, 10)) is Route.LAYOUT


def test_a_scan_goes_to_ocr(tmp_path: Path, photo: str) -> None:
    assert route(tmp_path, lambda canvas: canvas.drawImage(photo, 0, 0, 595, 842)) is Route.OCR


@pytest.mark.parametrize("how", ["render mode", "transparent"])
def test_invisible_text_over_a_scan_is_not_trusted(tmp_path: Path, photo: str, how: str) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawImage(photo, 0, 0, 595, 842)
        if how == "transparent":
            canvas.setFillAlpha(0)
        for number in range(30):
            text = canvas.beginText(60, 780 - 20 * number)
            text.setFont("Helvetica", 10)
            if how == "render mode":
                text.setTextRenderMode(3)
            text.textOut("words that an earlier machine has read somewhere on this page")
            canvas.drawText(text)

    assert route(tmp_path, draw) is Route.OCR


def test_a_poster_with_a_typed_stamp_goes_to_ocr(tmp_path: Path, photo: str) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawImage(photo, 0, 0, 595, 842)
        canvas.drawString(60, 60, "Page 3")

    assert route(tmp_path, draw) is Route.OCR


def test_a_typed_slide_over_a_background_picture_is_read_as_typed(tmp_path: Path, photo: str) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawImage(photo, 0, 0, 595, 842)
        for number in range(4):
            canvas.drawString(60, 600 - 30 * number, "This is a whole line of words on a slide")

    assert route(tmp_path, draw) is Route.LAYOUT


def test_text_that_runs_sideways_goes_to_flash(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.translate(595, 0)
        canvas.rotate(90)
        paragraph(canvas, 60, 500, 600, 20)

    assert route(tmp_path, draw) is Route.FLASH


def test_a_blank_page_goes_nowhere_costly(tmp_path: Path) -> None:
    assert route(tmp_path, lambda canvas: None) is Route.LAYOUT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("checks/pdfs/mattsnotes.pdf", Route.OCR),
        ("checks/pdfs/lincoln_letter.pdf", Route.OCR),
        ("checks/pdfs/test-graphical-text.pdf", Route.OCR),
        ("papers/right_to_left_01.pdf", Route.FLASH),
        ("papers/demo1.pdf", Route.LAYOUT),
    ],
)
def test_real_pages_go_where_they_are_read_best(corpus: Path, name: str, expected: Route) -> None:
    import pypdfium2

    from pipeline.page_source import PageSource

    file = corpus / name
    if not file.is_file():
        pytest.skip(f"no {name} in the corpus")
    document = pypdfium2.PdfDocument(file)
    assert {choose(PageSource(document, index)).route for index in range(len(document))} == {expected}


def framed(canvas: Canvas) -> None:
    paragraph(canvas, 60, 700, 400, 10)
    for row in range(4):
        for column in range(3):
            canvas.rect(60 + 100 * column, 400 - 20 * row, 100, 20)
            canvas.drawString(66 + 100 * column, 406 - 20 * row, f"r{row}c{column}")


def fraction(canvas: Canvas) -> None:
    paragraph(canvas, 60, 700, 400, 10)
    canvas.drawString(280, 410, "a + b")
    canvas.line(276, 405, 312, 405)
    canvas.drawString(290, 394, "c")


@pytest.mark.parametrize(
    ("draw", "without", "with_one", "why"),
    [
        (lambda canvas: paragraph(canvas, 60, 700, 400, 10), Route.LAYOUT, Route.LAYOUT, "sound text layer"),
        (framed, Route.LAYOUT, Route.VLM, "sound text layer with tables"),
        (fraction, Route.LAYOUT, Route.VLM, "sound text layer with formulas"),
        (accounts, Route.LAYOUT, Route.VLM, "sound text layer with tables"),
        (lambda canvas: canvas.circle(200, 200, 60), Route.OCR, Route.VLM, "no text layer"),
        (lambda canvas: None, Route.LAYOUT, Route.LAYOUT, "nothing but white"),
    ],
)
def test_with_an_engine_pages_go_to_it_that_gain_by_it(
    tmp_path: Path, draw: Callable[[Canvas], None], without: Route, with_one: Route, why: str
) -> None:
    (page,) = sources(tmp_path, draw)
    assert choose(page).route is without
    decision = choose(page, engine=True)
    assert (decision.route, decision.why) == (with_one, why)
