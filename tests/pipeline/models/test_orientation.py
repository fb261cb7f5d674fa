"""The classifier for quarter turns."""

from __future__ import annotations

import pytest
from PIL import Image

from pipeline.models import Models
from tests.pipeline.ocr.drawing import SENTENCES, page

DENSE = page(SENTENCES * 9)


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_a_full_page_is_recognised_however_it_lies(models: Models, turned: int) -> None:
    lying = DENSE.rotate(turned, expand=True)  # counter-clockwise, so `turned` clockwise is the way back
    turn, sure = models.orientation.quarter_turn(lying)
    assert turn == turned
    assert sure > 0.5


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (3000, 2)])
def test_any_size_gets_an_answer(models: Models, size: tuple[int, int]) -> None:
    assert models.orientation.quarter_turn(Image.new("RGB", size, "white"))[0] in (0, 90, 180, 270)
