"""Bold lines of scans, from the thickness of their strokes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image, ImageDraw

from pipeline.ocr.ink import stroke_width
from pipeline.ocr.weights import with_weights
from tests.pipeline.ocr.drawing import font
from tests.pipeline.structure.build import line

BODY = [line("some words of running text", 60, 60 + 14 * n, bold=None) for n in range(9)]


def drawn(bold: bool) -> np.ndarray:
    image = Image.new("RGB", (420, 40), "white")
    ImageDraw.Draw(image).text((8, 5), "Recording a Sequence", fill="black", font=font(26, bold))
    return np.asarray(image)


def test_bold_type_has_thicker_strokes_than_regular() -> None:
    assert stroke_width(drawn(bold=True)) > 1.15 * stroke_width(drawn(bold=False))


def test_light_type_on_dark_is_as_thick_as_dark_on_light() -> None:
    assert abs(stroke_width(255 - drawn(bold=True)) - stroke_width(drawn(bold=True))) < 0.01


def test_a_line_with_thick_strokes_is_bold_and_the_others_are_not() -> None:
    lines = with_weights(BODY, [1.0] * 8 + [1.4])
    assert [found.bold for found in lines] == [False] * 8 + [True]


def test_a_page_with_few_lines_says_nothing_about_weight() -> None:
    assert {found.bold for found in with_weights(BODY[:5], [1.0] * 4 + [1.4])} == {None}


def test_written_pages_say_nothing_about_weight() -> None:
    written = [replace(found, score=0.8) for found in BODY]
    assert {found.bold for found in with_weights(written, [1.0] * 8 + [1.4])} == {None}
