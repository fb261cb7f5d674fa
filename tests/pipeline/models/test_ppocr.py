"""PP-OCR on drawn lines."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from PIL import Image

from pipeline.models import Models
from pipeline.models.ppocr import TextModel
from pipeline.ocr.crops import cut
from pipeline.page_model import Quality
from tests.pipeline.ocr.drawing import SENTENCES, page


def bgr(image: Image.Image) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


@pytest.mark.parametrize("quality", list(Quality))
def test_both_qualities_read_print_without_a_network(quality: Quality, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model tried to reach the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    model = TextModel(quality)
    pixels = bgr(page())
    crops = cut(pixels, list(model.detect(pixels)))
    assert [reading.text for reading in model.read(crops)] == list(SENTENCES)


def test_lines_come_back_in_the_order_they_were_given(models: Models) -> None:
    pixels = bgr(page(("short", "a much longer line than the others are", "middling line")))
    crops = cut(pixels, list(models.text.detect(pixels)))
    readings = models.text.read(crops[::-1])
    assert [r.text for r in readings] == ["middling line", "a much longer line than the others are", "short"]


def test_a_careful_reading_has_alternatives_for_each_character(models: Models) -> None:
    pixels = bgr(page(("Notes on the old map",)))
    (crop,) = cut(pixels, list(models.text.detect(pixels)))
    (reading,) = models.text.read_carefully([[crop, crop]])
    assert reading.text == "Notes on the old map"
    assert len(reading.alternatives) == len(reading.text.replace(" ", ""))


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 500, 3), (64, 64, 3)])
def test_an_image_without_text_has_no_lines(models: Models, shape: tuple[int, ...]) -> None:
    assert models.text.detect(np.full(shape, 255, dtype=np.uint8)).shape == (0, 4, 2)


def test_no_crops_give_no_readings(models: Models) -> None:
    assert models.text.read([]) == []
