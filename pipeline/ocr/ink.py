"""Where the ink of a cut-out line is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BAND = 0.45
"""A row of pixels belongs to the band of the letters' bodies if it has this share of the ink of the line's
fullest rows; ascenders, descenders and bits of neighbouring lines have less."""

SOLID_BAND = 0.12
"""The same for ideographs, whose strokes fill their square unevenly."""

BAND_HEIGHT = 64
STROKE_HEIGHT = 96
"""Pixels to which a line is scaled to find its band and to measure its strokes."""

MIN_BAND = 0.2
"""Share of the crop's height under which the band is a rule or a stroke rather than letters."""


def body_band(crop: NDArray[np.uint8], ideographs: bool = False) -> tuple[float, float] | None:
    """Top and foot of the letters' bodies, as shares (0..1) of the crop's height; None where it is not clear.

    For small letters that is from the x-height to the baseline, for capitals, figures and ideographs their
    whole height.

    Args:
        crop: one horizontal line, BGR, dark on light or light on dark.
        ideographs: whether that is what it holds.
    """
    import numpy as np

    if min(crop.shape[:2]) < 6:
        return None
    ink = _ink(crop, BAND_HEIGHT)
    height = ink.shape[0]
    profile = ink.sum(axis=1)
    full = profile >= max(1.0, (SOLID_BAND if ideographs else BAND) * float(np.percentile(profile, 90)))
    if ideographs and full.any():
        start, end = int(full.argmax()), height - int(full[::-1].argmax())
    else:
        start, end = _longest_run(full)
    if end - start < MIN_BAND * height:
        return None
    return start / height, end / height


def stroke_width(crop: NDArray[np.uint8]) -> float:
    """Mean thickness of the strokes as a share of the crop's height; 0 without ink.

    Args:
        crop: one horizontal line, BGR.
    """
    import cv2
    import numpy as np

    if min(crop.shape[:2]) < 6:
        return 0.0
    ink = _ink(crop, STROKE_HEIGHT)
    distance = cv2.distanceTransform(ink, cv2.DIST_L2, 3)
    ridge = (distance == cv2.dilate(distance, np.ones((3, 3)))) & (distance > 0)
    return 2 * float(distance[ridge].mean()) / ink.shape[0] if ridge.any() else 0.0


def _ink(crop: NDArray[np.uint8], height: int) -> NDArray[np.uint8]:
    """1 where the line has ink, scaled to `height` rows, whether it is dark on light or light on dark."""
    import cv2
    import numpy as np

    grey = cv2.cvtColor(np.ascontiguousarray(crop), cv2.COLOR_BGR2GRAY)
    how = cv2.INTER_AREA if grey.shape[0] > height else cv2.INTER_CUBIC
    grey = cv2.resize(grey, (max(6, grey.shape[1] * height // grey.shape[0]), height), interpolation=how)
    _, ink = cv2.threshold(grey, 0, 1, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)
    return 1 - ink if ink.mean() > 0.5 else ink


def _longest_run(rows: NDArray[np.bool_]) -> tuple[int, int]:
    best = (0, 0)
    start: int | None = None
    for i, full in enumerate([*rows.tolist(), False]):
        if full and start is None:
            start = i
        elif not full and start is not None:
            if i - start > best[1] - best[0]:
                best = (start, i)
            start = None
    return best
