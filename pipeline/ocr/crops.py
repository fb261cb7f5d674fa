"""Cuts lines of text out of a page image, upright whatever way they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TALL = 1.5
"""A piece at least this many times as high as wide holds text that runs up or down the page."""


def cut(image: NDArray[np.uint8], quads: Sequence[NDArray[np.float32]]) -> list[NDArray[np.uint8]]:
    """One straightened crop per quadrilateral; tall ones lie on their left side (they read downwards).

    Args:
        image: height x width x 3.
        quads: 4 x 2 pixels each, corners clockwise from the top left.
    """
    from rapidocr.utils.process_img import get_rotate_crop_image

    return [get_rotate_crop_image(image, _at_least_one_pixel(quad)) for quad in quads]


def is_tall(quad: NDArray[np.float32]) -> bool:
    """Whether `cut` lays this piece on its side."""
    width, height = size(quad)
    return height >= TALL * width


def size(quad: NDArray[np.float32]) -> tuple[float, float]:
    """Width and height of a quadrilateral along its own edges, in its own unit."""
    import numpy as np

    width = max(np.linalg.norm(quad[0] - quad[1]), np.linalg.norm(quad[2] - quad[3]))
    height = max(np.linalg.norm(quad[0] - quad[3]), np.linalg.norm(quad[1] - quad[2]))
    return float(width), float(height)


def _at_least_one_pixel(quad: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    grown = np.array(quad, dtype=np.float32)
    if size(grown)[0] < 1:
        grown[1:3, 0] += 1
    if size(grown)[1] < 1:
        grown[2:4, 1] += 1
    return grown
