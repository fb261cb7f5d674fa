"""Whether a layout can be that of this page. A model that has lost its way names boxes all the same.

Rules of geometry alone: they hold for any model and any page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image

from pipeline.errors import PageFailed
from pipeline.mineru_vlm import CONTAINERS
from pipeline.page_model import Block

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_BLOCKS = 400
"""Blocks of a page; the densest index pages have about half as many."""

FEWEST_VALID = 0.6
"""Share of the boxes named that must be boxes: in range, of a known type, not the same one again."""

MOST_OVERLAP = 0.35
"""Share of the boxes' area that may lie on other boxes, a picture within a table for example."""

LEAST_COVERED = 0.5
"""Share of what is on the page that must lie within boxes. Text that a good layout misses is far less."""

_SIDE = 128
"""Cells of the grid, each way, on which areas are counted."""

_INK = 48
"""Distance from the page's usual brightness (0..255) from which a cell has something on it."""

_BLANK = 0.0015
"""Share of cells with something on them under which a page is blank but for dust."""


class GarbageLayout(PageFailed):
    """The engine's layout cannot be that of this page."""


def check_layout(blocks: Sequence[Block], named: int, page: Image.Image) -> None:
    """Accept a layout or refuse it.

    Args:
        blocks: that could be read out of the answer.
        named: boxes in the answer, good or not.
        page: its picture.

    Raises:
        GarbageLayout: says in a few words what is wrong.
    """
    ink = _ink(page)
    if not blocks:
        if named == 0 and ink.mean() < _BLANK:
            return
        raise GarbageLayout("the layout has no box" if named == 0 else "no box of the layout is one")
    if named > MOST_BLOCKS:
        raise GarbageLayout(f"the layout has {named} boxes")
    if len(blocks) < FEWEST_VALID * named and named - len(blocks) > 2:
        raise GarbageLayout(f"only {len(blocks)} of {named} boxes of the layout are boxes")
    layers = _layers([block for block in blocks if block["type"] not in CONTAINERS] or blocks)
    stacked = float((layers - 1).clip(min=0).sum() / max(1, layers.sum()))
    if stacked > MOST_OVERLAP:
        raise GarbageLayout(f"boxes of the layout lie on each other ({stacked:.0%})")
    if ink.mean() < _BLANK:
        return
    covered = float((ink & (layers > 0)).sum() / ink.sum())
    if covered < LEAST_COVERED:
        raise GarbageLayout(f"the layout covers {covered:.0%} of what is on the page")


def _ink(page: Image.Image) -> NDArray[np.bool_]:
    """Cells with something on them, by their darkest (on a dark page: brightest) pixel against the usual one."""
    import numpy as np

    # Four samples a cell each way: the thinnest stroke still dims one of them.
    fine = page.convert("L").resize((4 * _SIDE, 4 * _SIDE), Image.Resampling.BOX)
    pixels = np.asarray(fine, dtype=np.int16)
    far = np.abs(pixels - int(np.median(pixels)))
    cells: NDArray[np.int16] = far.reshape(_SIDE, 4, _SIDE, 4).max(axis=(1, 3))
    return cells > _INK


def _layers(blocks: Sequence[Block]) -> NDArray[np.int32]:
    """How many boxes lie on each cell."""
    import numpy as np

    layers = np.zeros((_SIDE, _SIDE), dtype=np.int32)
    for block in blocks:
        x0, y0, x1, y1 = (float(v) * _SIDE for v in block["bbox"])
        layers[int(y0) : max(int(y0) + 1, int(np.ceil(y1))), int(x0) : max(int(x0) + 1, int(np.ceil(x1)))] += 1
    return layers
