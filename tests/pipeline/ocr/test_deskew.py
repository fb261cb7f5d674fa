"""Small angles."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.models import Models
from pipeline.ocr.deskew import skew, straighten_image, straighten_quads
from tests.pipeline.ocr.drawing import SENTENCES, page


def quads_of(models: Models, image: object) -> np.ndarray:
    return models.text.detect(np.ascontiguousarray(np.asarray(image)[:, :, ::-1]))


@pytest.mark.parametrize("angle", [-4.0, 1.5])
def test_a_tilted_page_is_measured_and_straightened(models: Models, angle: float) -> None:
    # Pillow turns counter-clockwise, and a line that falls to the right has a positive skew.
    tilted = page(SENTENCES * 3).rotate(-angle, fillcolor="white")
    quads = quads_of(models, tilted)
    measured = skew(quads)
    assert measured == pytest.approx(angle, abs=0.35)
    assert skew(quads_of(models, straighten_image(tilted, measured))) == 0.0
    assert skew(straighten_quads(quads, measured, tilted.size)) == 0.0


def test_a_straight_page_is_left_alone(models: Models) -> None:
    assert skew(quads_of(models, page())) == 0.0


def test_lines_at_many_angles_have_no_common_one() -> None:
    quads = []
    for number, degrees in enumerate((-12, -7, -3, 3, 7, 12)):
        along = 400 * np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        start = np.array([100.0, 200.0 + 100 * number])
        down = np.array([0.0, 30.0])
        quads.append([start, start + along, start + along + down, start + down])
    assert skew(np.array(quads, dtype=np.float32)) == 0.0


def test_an_empty_page_has_no_angle() -> None:
    assert skew(np.zeros((0, 4, 2), dtype=np.float32)) == 0.0
