"""Reads the detected pieces of a page: quickly first, and once more where the quick reading is unsure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.models.ctc import Reading
from pipeline.models.ppocr import TextModel
from pipeline.ocr.crops import cut, is_tall
from pipeline.ocr.lexicon import is_suspicious, settle
from pipeline.ocr.lines import Piece
from pipeline.ocr.views import views
from pipeline.page_model import Quality

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNSURE = 0.95
"""Confidence under which a line is read again: nineteen in twenty lines of clean print score above it."""

HARD_PAGE = 0.5
"""Share of such lines from which the whole page is read again: on handwriting even sure lines are wrong."""

TRUST = 0.1
"""How much less sure the careful reading may be and still win; its confidence is better founded."""

MAX_AGAIN = 60
"""Lines of one page that are read again, the least sure ones: a bound on the time of a hopeless page."""


def read_pieces(image: NDArray[np.uint8], quads: Sequence[NDArray[np.float32]], model: TextModel) -> list[Piece]:
    """Cut out and read every quadrilateral; on a hard page also those that another detector finds.

    Args:
        image: the upright page, BGR.
        quads: as `TextModel.detect` gives them.
    """
    quads = list(quads)
    crops = cut(image, quads)
    readings = _best_ways_up(crops, quads, model)
    unsure = [i for i, r in enumerate(readings) if r.text and (r.score < UNSURE or is_suspicious(r.text))]
    if len(unsure) >= HARD_PAGE * len(readings) > 0:
        # The same pieces at either quality; those that are new are read quickly first, as the others were.
        known = {id(q): i for i, q in enumerate(quads)}
        tiny, small = model.detect_with_both(image, quads)
        chosen = tiny + [q for q in small if not any(_overlap(q, other) for other in tiny)]
        fresh = [q for q in chosen if id(q) not in known]
        fresh_crops = cut(image, fresh)
        fresh_readings = _best_ways_up(fresh_crops, fresh, model)
        kept = [known[id(q)] for q in chosen if id(q) in known]
        quads = [quads[i] for i in kept] + fresh
        crops = [crops[i] for i in kept] + fresh_crops
        readings = [readings[i] for i in kept] + fresh_readings
        unsure = list(range(len(readings)))
    again = sorted(unsure, key=lambda i: readings[i].score)[:MAX_AGAIN]
    # A tall crop has been turned the right way up already.
    seen = [[crops[i]] if is_tall(quads[i]) else views(image, quads[i]) for i in again]
    for i, careful in zip(again, model.read_carefully(seen), strict=True):
        # At high quality both are by one model, and more views say more than one does.
        if careful.text and (model.quality is Quality.HIGH or careful.score >= readings[i].score - TRUST):
            # The mean of both, because one model can be sure of its own mistakes.
            readings[i] = replace(careful, score=(careful.score + readings[i].score) / 2)
    return [Piece(q, c, settle(r)) for q, c, r in zip(quads, crops, readings, strict=True)]


def _overlap(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Whether the upright boxes around two quadrilaterals share a third of the smaller one."""
    first, second = [(q.min(axis=0), q.max(axis=0)) for q in (a, b)]
    sides = [max(0.0, float(min(first[1][k], second[1][k]) - max(first[0][k], second[0][k]))) for k in (0, 1)]
    smaller = min(float((box[1] - box[0]).prod()) for box in (first, second))
    return sides[0] * sides[1] > 0.34 * smaller


def _best_ways_up(
    crops: list[NDArray[np.uint8]], quads: Sequence[NDArray[np.float32]], model: TextModel
) -> list[Reading]:
    """Tall pieces may read upwards or downwards: the better of the two, and `crops` turned to match."""
    readings = model.read(crops)
    tall = [i for i, q in enumerate(quads) if is_tall(q)]
    turned = [crops[i][::-1, ::-1] for i in tall]
    for i, crop, other in zip(tall, turned, model.read(turned), strict=True):
        if other.score > readings[i].score:
            crops[i], readings[i] = crop, other
    return readings
