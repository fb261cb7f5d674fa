"""A page that is hard to read gets the same second look at either quality, and loses no line by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.models.ctc import Reading
from pipeline.ocr.reading import read_pieces
from pipeline.page_model import Quality


def quad(y: float) -> np.ndarray:
    return np.array([[10, y], [310, y], [310, y + 40], [10, y + 40]], dtype=np.float32)


def reading(text: str, score: float) -> Reading:
    return Reading(text, score, tuple((i + 0.5) / len(text) for i in range(len(text))))


class Models:
    """Two detectors: tiny sees two slanted lines that overlap, small one of them and a faint third."""

    def __init__(self, quality: Quality) -> None:
        self.quality = quality
        self.tiny, self.small = [quad(20), quad(45)], [quad(46), quad(150)]

    def detect_with_both(self, image: object, found: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return (self.tiny, list(found)) if self.quality is Quality.HIGH else (list(found), self.small)

    def read(self, crops: Sequence[object]) -> list[Reading]:
        return [reading("quick", 0.9) for _ in crops]

    def read_carefully(self, lines: Sequence[object]) -> list[Reading]:
        return [reading("careful", 0.7 if self.quality is Quality.HIGH else 0.85) for _ in lines]


@pytest.mark.parametrize("quality", list(Quality))
def test_a_hard_page_is_read_from_the_same_pieces_at_either_quality(quality: Quality) -> None:
    models = Models(quality)
    found = models.small if quality is Quality.HIGH else models.tiny
    pieces = read_pieces(np.full((240, 400, 3), 255, np.uint8), found, models)  # type: ignore[arg-type]
    assert [float(p.quad[0][1]) for p in pieces] == ([150, 20, 45] if quality is Quality.HIGH else [20, 45, 150])
    assert {p.reading.text for p in pieces} == {"careful"}
