"""Small angles of a scanned page, measured on its lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

from pipeline.ocr.crops import size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_ANGLE = 0.4
"""Degrees; less than this moves the end of a full line by less than half its height."""

MAX_ANGLE = 15.0
"""Degrees; the detector finds no usable lines beyond it."""

AGREEMENT = 0.6
"""Share of the text (by length) that must lie within one degree of the page's angle: handwriting and posters
have lines at several angles and no angle of their own."""


def skew(quads: NDArray[np.float32]) -> float:
    """The angle by which the page's lines fall to the right, degrees; 0.0 if it is not worth correcting.

    Args:
        quads: n x 4 x 2, corners clockwise from the top left of each line.
    """
    import numpy as np

    angles: list[float] = []
    weights: list[float] = []
    for quad in quads:
        width, height = size(quad)
        if width >= 2.5 * height:
            along = (quad[1] - quad[0]) + (quad[2] - quad[3])
            angles.append(float(np.degrees(np.arctan2(along[1], along[0]))))
            weights.append(width)
    if len(angles) < 3:
        return 0.0
    order = np.argsort(angles)
    cumulated = np.cumsum(np.asarray(weights)[order])
    middle = float(np.asarray(angles)[order][np.searchsorted(cumulated, cumulated[-1] / 2)])
    agreeing = sum(w for a, w in zip(angles, weights, strict=True) if abs(a - middle) <= 1.0)
    if not MIN_ANGLE <= abs(middle) <= MAX_ANGLE or agreeing < AGREEMENT * cumulated[-1]:
        return 0.0
    return middle


def straighten_image(image: Image.Image, angle: float) -> Image.Image:
    """`image` turned about its middle so that lines falling by `angle` degrees lie level; same size."""
    edge = image.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
    return image.rotate(angle, resample=Image.Resampling.BICUBIC, fillcolor=edge)


def straighten_quads(quads: NDArray[np.float32], angle: float, image_size: tuple[int, int]) -> NDArray[np.float32]:
    """The same turn for quadrilaterals on an image of `image_size` (width, height)."""
    import numpy as np

    middle = np.array(image_size, dtype=np.float32) / 2
    radians = np.radians(-angle)
    turn = np.array([[np.cos(radians), -np.sin(radians)], [np.sin(radians), np.cos(radians)]])
    return ((quads - middle) @ turn.T + middle).astype(np.float32)
