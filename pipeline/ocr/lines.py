"""From detected pieces and their readings to lines of text with words, as a PDF's text layer would give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from pipeline.models.ctc import Reading
from pipeline.ocr.crops import is_tall
from pipeline.ocr.crops import size as size_of
from pipeline.ocr.ink import body_band, stroke_width
from pipeline.ocr.sizes import ASCENT, DESCENT, em, harmonised, is_hard, is_ideographic
from pipeline.ocr.weights import with_weights
from pipeline.page_model import BBox, TextLine, Word

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GUTTER = 1.2
"""Ems; a wider gap within one detected piece parts two columns or two cells of a table."""

WRITTEN_GUTTER = 2.5
"""The same on pages written by hand, where words stand far apart."""

MIN_SCORE = 0.5
WRITTEN_SCORE = 0.4
"""Confidence under which a reading is the texture of a picture rather than text; on written pages less."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One detected quadrilateral (4 x 2, pixels), what was cut out of the page there, and what it says."""

    quad: NDArray[np.float32]
    crop: NDArray[np.uint8]
    reading: Reading

    def moved(self, quad: NDArray[np.float32]) -> Piece:
        """The same piece at another place."""
        return Piece(quad, self.crop, self.reading)


def text_lines(pieces: Sequence[Piece], scale: float) -> list[TextLine]:
    """Lines in page points, in the order of `pieces`.

    Pieces without legible text are left out; a piece that spans a gutter becomes several lines.

    Args:
        pieces: quads in pixels of the upright, straightened page.
        scale: pixels per point.
    """
    legible = [p for p in pieces if p.reading.text and p.reading.score >= WRITTEN_SCORE]
    written = is_hard((p.reading.text, p.reading.score) for p in legible)
    if not written:
        legible = [p for p in legible if p.reading.score >= MIN_SCORE]
    gutter = WRITTEN_GUTTER if written else GUTTER
    found = [(line, stroke) for piece in legible for line, stroke in _lines(piece, scale, gutter)]
    return with_weights(harmonised([line for line, _ in found]), [stroke for _, stroke in found])


def _lines(piece: Piece, scale: float, gutter: float) -> Iterator[tuple[TextLine, float]]:
    """The lines of a piece, each with the thickness of its strokes in points."""
    reading = piece.reading
    measures = _measures(piece, scale)
    _, y0, _, y1 = measures.bbox
    if is_tall(piece.quad):
        # Text up or down the page: no word has a place of its own.
        words = tuple(Word(text, measures.bbox) for text in reading.text.split())
        text = " ".join(w.text for w in words)
        yield TextLine(text, measures.bbox, words, reading.score, measures.size), 0.0
        return
    placed = _words(reading, measures.bbox)
    start = 0
    for i in range(1, len(placed) + 1):
        if i == len(placed) or placed[i].bbox[0] - placed[i - 1].bbox[2] > gutter * measures.size:
            part = tuple(placed[start:i])
            box = (part[0].bbox[0], y0, part[-1].bbox[2], y1)
            line = TextLine(" ".join(w.text for w in part), box, part, reading.score, measures.size)
            yield line, measures.stroke
            start = i


@dataclass(frozen=True, slots=True)
class _Measures:
    """Box, font size and thickness of strokes of a piece, points; 0 where the last could not be measured."""

    bbox: BBox
    size: float
    stroke: float = 0.0


def _measures(piece: Piece, scale: float) -> _Measures:
    """Measure a piece.

    The box is set from the baseline as a font would: detectors add a margin that varies, and ink alone is
    higher or lower by whether a line has a "p" in it.
    """
    xs, ys = piece.quad[:, 0], piece.quad[:, 1]
    x0, y0, x1, y1 = (float(v) / scale for v in (xs.min(), ys.min(), xs.max(), ys.max()))
    if is_tall(piece.quad):
        return _Measures((x0, y0, x1, y1), x1 - x0)
    # Measured along the middle line, because a box around a slanted piece is too high.
    left, right = (piece.quad[0] + piece.quad[3]) / 2, (piece.quad[1] + piece.quad[2]) / 2
    middle = float(left[1] + right[1]) / 2 / scale
    height = max(1.0, size_of(piece.quad)[1]) / scale
    text = piece.reading.text
    band = body_band(piece.crop, is_ideographic(text))
    if band is None:
        return _Measures((x0, middle - height / 2, x1, middle + height / 2), height / (ASCENT + DESCENT))
    pitch = _pitch(piece.reading.centres) * size_of(piece.quad)[0] / scale
    size = min(em(text, (band[1] - band[0]) * height, pitch), 1.3 * height)
    baseline = middle + (band[1] - 0.5) * height
    stroke = stroke_width(piece.crop) * height
    return _Measures((x0, baseline - ASCENT * size, x1, baseline + DESCENT * size), size, stroke)


def _pitch(centres: Sequence[float]) -> float:
    """Usual distance between neighbouring characters, as a share of the line."""
    return median(b - a for a, b in pairwise(centres)) if len(centres) > 1 else 1.0


def _words(reading: Reading, box: BBox) -> list[Word]:
    """Words with boxes from the places of their characters."""
    x0, y0, x1, y1 = box
    width = x1 - x0
    centres = reading.centres
    half = _pitch(centres) / 2
    words = []
    at = 0
    for text in reading.text.split():
        first, last = centres[at], centres[at + len(text) - 1]
        left = max(0.0, first - half) if at else min(max(0.0, first - 1.5 * half), first)
        right = min(1.0, last + half)
        words.append(Word(text, (x0 + left * width, y0, x0 + max(right, left + 1e-3) * width, y1)))
        at += len(text)
    return words
