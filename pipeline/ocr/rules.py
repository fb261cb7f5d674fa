"""Straight rules on a page image: the frames of tables."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from pipeline.page_model import BBox

WORKING_SCALE = 150 / 72
"""Pixels per point at which rules are looked for: a hairline is still one pixel."""

MIN_HORIZONTAL = 30.0
MIN_VERTICAL = 16.0
"""Points; shorter strokes are parts of letters."""

MAX_THICKNESS = 5.0
"""Points; thicker bars are shading."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Boxes of horizontal and of vertical rules, page points."""

    horizontal: tuple[BBox, ...]
    vertical: tuple[BBox, ...]


def find_rules(image: Image.Image, scale: float) -> Rules:
    """The rules of a straightened page.

    Args:
        image: the page, RGB.
        scale: pixels per point of `image`.
    """
    import cv2
    import numpy as np

    grey = np.asarray(image.convert("L"))
    factor = min(1.0, WORKING_SCALE / scale)
    if factor < 1.0:
        size = max(1, round(grey.shape[1] * factor)), max(1, round(grey.shape[0] * factor))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    if min(grey.shape) < 32:
        return Rules((), ())
    # Against the neighbourhood, because tables stand on shaded rows and scans have uneven light.
    ink = cv2.adaptiveThreshold(grey, 1, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, 25, 12)
    return Rules(_boxes(ink, scale * factor, along=1), _boxes(ink, scale * factor, along=0))


def _boxes(ink: object, scale: float, along: int) -> tuple[BBox, ...]:
    import cv2
    import numpy as np

    length = max(9, round((MIN_HORIZONTAL if along else MIN_VERTICAL) * scale))
    # A rule of a scan wavers by a pixel: thicken across it, then ask for an unbroken run along it.
    across = np.ones((3, 1) if along else (1, 3), np.uint8)
    run = np.ones((1, length) if along else (length, 1), np.uint8)
    found = cv2.morphologyEx(cv2.dilate(ink, across), cv2.MORPH_OPEN, run)
    count, _, stats, _ = cv2.connectedComponentsWithStats(found, connectivity=8)
    boxes = []
    for x, y, width, height, _ in stats[1:count]:
        thickness = (height if along else width) - 2
        if thickness <= MAX_THICKNESS * scale:
            boxes.append((x / scale, y / scale, (x + width) / scale, (y + height) / scale))
    return tuple(boxes)
