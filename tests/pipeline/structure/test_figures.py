"""Drawings that a caption calls a figure."""

from __future__ import annotations

import pytest

from pipeline.page_model import BBox
from pipeline.structure.figures import captioned_figures
from tests.pipeline.structure.build import SIZE, column, line

CAPTION = line("Figure 1. The way of a page.", 60, 300)
PROSE = "The river runs along the valley and turns to the south."


def row(y: float) -> list[BBox]:
    return [(60.0, y, 160.0, y + 40), (200.0, y, 300.0, y + 40), (340.0, y, 440.0, y + 40)]


def test_the_drawing_above_a_caption_is_found_with_the_labels_that_reach_out_of_it() -> None:
    lines = [*column([PROSE] * 3, 60, 150), line("the last box", 400, 260), CAPTION]
    (figure,) = captioned_figures(lines, row(240), [], SIZE)
    assert figure.bbox == (60.0, 240.0, 455.0, 280.0)


def test_rules_between_shapes_are_part_of_the_drawing() -> None:
    (figure,) = captioned_figures([CAPTION], row(200), [(60.0, 260.0, 500.0, 261.0)], SIZE)
    assert figure.bbox == (60.0, 200.0, 500.0, 261.0)


def test_a_drawing_that_text_runs_through_is_not_cut() -> None:
    assert not captioned_figures([*column([PROSE] * 2, 60, 215), CAPTION], [*row(170), *row(245)], [], SIZE)


@pytest.mark.parametrize("text", ["Figure 1 shows the way of a page.", "Table 1. The way of a page.", "Figures."])
def test_other_lines_are_no_captions_of_figures(text: str) -> None:
    assert not captioned_figures([line(text, 60, 300)], row(240), [], SIZE)


def test_a_frame_of_rectangles_under_a_caption_is_no_drawing() -> None:
    assert not captioned_figures([CAPTION], [], row(240), SIZE)
