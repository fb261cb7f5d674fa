"""Which quarter turn makes a scanned page upright.

The classifier is quick but looks at a thumbnail: it guesses on pages with little text and errs on scripts it
does not know. A page is turned only if a sample of its lines then reads better, or, where reading cannot
tell, if the classifier is sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

from pipeline.models import Models
from pipeline.ocr.crops import cut, is_tall, size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SURE = 0.8
"""Probability from which the classifier's "upright" is believed without reading."""

VERY_SURE = 0.9
"""Probability from which its turn is believed although reading cannot tell."""

READABLE = 0.7
CLEARLY_BETTER = 0.08
"""Mean recognition confidence that the right way up must reach, and its lead over the opposite way."""

SAMPLE = 8


def quarter_turn(image: NDArray[np.uint8], quads: NDArray[np.float32], models: Models) -> int:
    """Degrees clockwise (0, 90, 180, 270) by which to turn the page.

    Args:
        image: the page, BGR.
        quads: its lines of text as detected, n x 4 x 2 pixels.
    """
    if not len(quads):
        return 0
    turn, sure = models.orientation.quarter_turn(_content(image, quads))
    if turn == 0 and sure >= SURE:
        return 0
    lengthwise = sum(max(size(q)) for q in quads if is_tall(q))
    sideways = lengthwise > sum(max(size(q)) for q in quads if not is_tall(q))
    if sideways and turn == 0 and sure > 0.5:
        # Upright characters set in columns, as in traditional Chinese and Japanese pages.
        return 0
    # A tall crop is cut so that it reads downwards: right side up on a page to be turned by 270.
    as_cut, opposite = (270, 90) if sideways else (0, 180)
    lines = sorted((q for q in quads if is_tall(q) == sideways), key=lambda q: max(size(q)), reverse=True)
    crops = cut(image, lines[:SAMPLE])
    score = _legibility(crops, models)
    turned = _legibility([_upside_down(c) for c in crops], models)
    if max(score, turned) >= READABLE and abs(score - turned) >= CLEARLY_BETTER:
        return as_cut if score > turned else opposite
    return turn if sure >= VERY_SURE and turn in (as_cut, opposite) else 0


def _content(image: NDArray[np.uint8], quads: NDArray[np.float32]) -> Image.Image:
    """The part of the page with text on it, with a margin."""
    height, width = image.shape[:2]
    margin = max(size(quads[0])) * 0.05 + 0.01 * max(height, width)
    x0, y0 = (max(0, int(v - margin)) for v in quads.reshape(-1, 2).min(axis=0))
    x1, y1 = (int(v + margin) for v in quads.reshape(-1, 2).max(axis=0))
    part = image[y0 : min(height, y1) or 1, x0 : min(width, x1) or 1, ::-1]
    return Image.fromarray(part)


def _upside_down(crop: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return crop[::-1, ::-1]


def _legibility(crops: list[NDArray[np.uint8]], models: Models) -> float:
    """Mean recognition confidence over the characters read."""
    readings = [r for r in models.text.read(crops) if r.text]
    characters = sum(len(r.text) for r in readings)
    return sum(r.score * len(r.text) for r in readings) / characters if characters else 0.0
