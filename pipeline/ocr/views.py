"""Several looks at one line of text: other margins, another contrast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.ocr.crops import cut, is_tall

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEIGHTS = (0.88, 1.0, 1.15)
"""A recogniser's answer on handwriting hangs on how much of its height the letters fill."""


def views(image: NDArray[np.uint8], quad: NDArray[np.float32]) -> list[NDArray[np.uint8]]:
    """Crops of one line, all of the same stretch from left to right.

    Args:
        image: the page, BGR.
        quad: the line, 4 x 2 pixels. A tall one is seen as it is: it may have been turned either way.
    """
    if is_tall(quad):
        return cut(image, [quad])
    crops = cut(image, [_grown(quad, factor) for factor in HEIGHTS])
    return [*crops, _even_light(crops[HEIGHTS.index(1.0)])]


def _grown(quad: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    """The quadrilateral with its height multiplied about its middle line."""
    grown = quad.copy()
    for top, bottom in ((0, 3), (1, 2)):
        down = (quad[bottom] - quad[top]) * (factor - 1) / 2
        grown[top] -= down
        grown[bottom] += down
    return grown


def _even_light(crop: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Grey with the paper's shade divided out and the contrast stretched."""
    import cv2
    import numpy as np

    grey = cv2.cvtColor(crop, cv2.COLOR_BGR2GRAY)
    height, width = grey.shape
    small = cv2.resize(grey, (max(8, width // 4), max(8, height // 4)), interpolation=cv2.INTER_AREA)
    paper = cv2.resize(cv2.medianBlur(small, 21), (width, height))
    flat = np.clip(255.0 * grey / np.maximum(paper, 1), 0, 255).astype(np.uint8)
    return cv2.cvtColor(cv2.normalize(flat, None, 0, 255, cv2.NORM_MINMAX), cv2.COLOR_GRAY2BGR)
