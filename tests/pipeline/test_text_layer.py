"""The text layer as words and lines that never cross a gutter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from pipeline.text_layer import TextLayer
from tests.pipeline.routes.pages import sources


def layer(path: Path, draw: Callable[[Canvas], None]) -> TextLayer:
    return sources(path, draw)[0].text


def test_a_line_has_its_words_place_size_and_weight(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica-Bold", 14)
        canvas.drawString(72, 700, "On the river")

    (line,) = layer(tmp_path, draw).lines
    assert line.text == "On the river"
    assert [word.text for word in line.words] == ["On", "the", "river"]
    assert (line.font_size, line.bold) == (14, True)
    assert line.bbox[0] == pytest.approx(72, abs=1.5)
    # A4 is 842 points high and the baseline stands on 700 from below.
    assert line.bbox[1] < 842 - 700 - 8 < 842 - 700 < line.bbox[3]


def test_cells_and_columns_are_lines_of_their_own(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawString(72, 700, "Revenue")
        canvas.drawString(200, 700, "1,200")
        canvas.drawString(230, 700, " ")
        canvas.drawString(260, 700, "1,100")

    assert [line.text for line in layer(tmp_path, draw).lines] == ["Revenue", "1,200", "1,100"]


def test_a_superscript_written_later_is_put_where_it_stands(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 12)
        canvas.drawString(72, 700, "products")
        canvas.drawString(128, 700, "and more")
        canvas.drawString(72, 680, "the next line")
        canvas.setFont("Helvetica", 7)
        canvas.drawString(119, 705, "1")

    assert [line.text for line in layer(tmp_path, draw).lines] == ["products1 and more", "the next line"]


def test_a_word_half_of_which_is_bold_stays_one_word(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        text = canvas.beginText(72, 700)
        text.setFont("Helvetica-Bold", 12)
        text.textOut("River")
        text.setFont("Helvetica", 12)
        text.textOut("side walks")
        canvas.drawText(text)

    (line,) = layer(tmp_path, draw).lines
    assert line.text == "Riverside walks"
    assert not line.bold


def test_characters_placed_one_by_one_make_words(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        x = 72.0
        for char in "long river":
            canvas.drawString(x, 700, char)
            x += canvas.stringWidth(char, "Helvetica", 12)

    assert [line.text for line in layer(tmp_path, draw).lines] == ["long river"]


def test_slanted_words_are_kept_apart(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawString(72, 700, "level")
        canvas.saveState()
        canvas.translate(200, 650)
        canvas.rotate(45)
        canvas.drawString(0, 0, "Procedure")
        canvas.restoreState()

    found = layer(tmp_path, draw)
    assert [line.text for line in found.lines] == ["level"]
    assert [word.text for word in found.slanted] == ["Procedure"]
    assert found.chars == len("level") + len("Procedure")


def test_invisible_text_is_counted(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        for mode, y in ((0, 700), (3, 680)):
            text = canvas.beginText(72, y)
            text.setTextRenderMode(mode)
            text.textOut("the same length")
            canvas.drawText(text)

    assert layer(tmp_path, draw).invisible == pytest.approx(0.5, abs=0.1)


def test_a_page_without_text_has_none(tmp_path: Path) -> None:
    found = layer(tmp_path, lambda canvas: canvas.rect(10, 10, 100, 100))
    assert (found.lines, found.chars, found.undecodable, found.invisible) == ((), 0, 0.0, 0.0)
