"""Display formulas of a born-digital page: text that is stacked (fractions, limits, sums) rather than set in lines.

Only what cannot be read as a line is found. A formula on one line is text like any other.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from pipeline.page_model import BBox, Region, RegionKind, TextLine
from pipeline.structure.geometry import covered, line_height, same_row, union

MAX_WORDS = 14
"""Longest piece of a line that may be part of a formula."""

MAX_PIECES = 1500
"""Short pieces of text on a page from which it is no page of formulas."""

_MATH = re.compile(r"[=∑∏∫√∂∇±≤≥≈≠∞→∈⊂×⋅·−+^|Α-Ωα-ω\ue000-\uf8ff]")
_LARGE = re.compile(r"[∑∏∫⋃⋂]")
_WORD = re.compile(r"^[A-Za-z]?[a-z]{3,}[,.;:]?$")


def find_formulas(lines: Sequence[TextLine], rules: Sequence[BBox], taken: Sequence[BBox]) -> list[Region]:
    """Where stacked formulas stand.

    Args:
        lines: pieces of lines, points.
        rules: horizontal rules, points; a short one with text over and under it is a fraction bar.
        taken: boxes of tables and figures, in which nothing is looked for.

    Returns:
        Regions of kind EQUATION, each around the pieces of one formula.
    """
    height = line_height(lines)
    pieces = [p for p in lines if _may_be_formula(p) and not any(covered(p.bbox, box) > 0.5 for box in taken)]
    if len(pieces) > MAX_PIECES:
        # A map or a plan: words everywhere, and no formula that anyone would miss.
        return []
    pieces.sort(key=lambda p: p.bbox[1])
    tallest = max((p.bbox[3] - p.bbox[1] for p in pieces), default=0.0)
    bars = [r for r in rules if 3 < r[2] - r[0] < 30 * height and not any(covered(r, box) > 0.5 for box in taken)]
    links = _Links(len(pieces))
    stacked: set[int] = set()
    for bar in bars:
        over = [i for i, p in enumerate(pieces) if _over_bar(p.bbox, bar, height)]
        under = [i for i, p in enumerate(pieces) if _over_bar(_flipped(p.bbox, bar), bar, height)]
        if over and under and not _underlines(bar, [pieces[i] for i in over], height):
            for i in (*over, *under):
                links.join(over[0], i)
                stacked.add(i)
    for i, a in enumerate(pieces):
        for j in range(i + 1, len(pieces)):
            b = pieces[j]
            if b.bbox[1] > a.bbox[3] + 0.5 * height:
                break
            if _interlocked(a, b, height):
                links.join(i, j)
                stacked.update((i, j))
    if not stacked:
        return []
    tops = [p.bbox[1] for p in pieces]
    for i in sorted(stacked):
        low, high = pieces[i].bbox[1] - tallest, pieces[i].bbox[3]
        for j in range(bisect_left(tops, low), bisect_right(tops, high)):
            b = pieces[j]
            if i != j and _beside(pieces[i].bbox, b.bbox, height):
                links.join(i, j)
    regions = []
    for group in links.groups():
        if not stacked.intersection(group) or not any(_MATH.search(pieces[i].text) for i in group):
            continue
        box = union(pieces[i].bbox for i in group)
        if len(group) > 1 and not any(_reads_on(line, box, pieces, group) for line in lines):
            regions.append(Region(RegionKind.EQUATION, box, 1.0))
    return regions


def _may_be_formula(piece: TextLine) -> bool:
    if len(piece.words) > MAX_WORDS:
        return False
    words = sum(bool(_WORD.match(word.text)) for word in piece.words)
    return words <= 1 or (words <= 2 and bool(_MATH.search(piece.text)))


def _over_bar(box: BBox, bar: BBox, height: float) -> bool:
    """The box stands right over the bar and not far beyond its ends."""
    return (
        -0.5 * height <= bar[1] - box[3] <= 0.6 * height
        and (box[1] + box[3]) / 2 < bar[1]
        and box[0] >= bar[0] - 0.6 * height
        and box[2] <= bar[2] + 0.6 * height
    )


def _flipped(box: BBox, bar: BBox) -> BBox:
    middle = bar[1] + bar[3]
    return (box[0], middle - box[3], box[2], middle - box[1])


def _underlines(bar: BBox, over: Sequence[TextLine], height: float) -> bool:
    """A bar far wider than what it carries is a rule of the page."""
    box = union(p.bbox for p in over)
    return bar[2] - bar[0] > 3 * (box[2] - box[0]) + 2 * height


def _interlocked(a: TextLine, b: TextLine, height: float) -> bool:
    """Two pieces closer than lines ever are: one reaches into the other's row without standing on it."""
    x = min(a.bbox[2], b.bbox[2]) - max(a.bbox[0], b.bbox[0])
    if _is_limit(a, b, height) or _is_limit(b, a, height):
        return True
    y = min(a.bbox[3], b.bbox[3]) - max(a.bbox[1], b.bbox[1])
    if x < -0.8 * height or y <= 0.15 * min(a.bbox[3] - a.bbox[1], b.bbox[3] - b.bbox[1]):
        return False
    return not same_row(a.bbox, b.bbox) and bool(_MATH.search(a.text) or _MATH.search(b.text))


def _is_limit(operator: TextLine, limit: TextLine, height: float) -> bool:
    """What stands over or under a sum or an integral."""
    if not _LARGE.search(operator.text) or len(limit.text) > 12 or limit.font_size > 0.85 * operator.font_size:
        return False
    inside = operator.bbox[0] - height <= limit.bbox[0] and limit.bbox[2] <= operator.bbox[2] + height
    gap = max(limit.bbox[1] - operator.bbox[3], operator.bbox[1] - limit.bbox[3])
    return inside and gap < 0.5 * height


def _beside(a: BBox, b: BBox, height: float) -> bool:
    distance = max(a[0], b[0]) - min(a[2], b[2])
    overlap = min(a[3], b[3]) - max(a[1], b[1])
    return distance < 3.0 * height and overlap > 0.2 * min(a[3] - a[1], b[3] - b[1])


def _reads_on(line: TextLine, box: BBox, pieces: Sequence[TextLine], group: Sequence[int]) -> bool:
    """Whether a line of words shares the formula's rows: then the formula stands within a sentence."""
    if any(line is pieces[i] for i in group):
        return False
    return len(line.words) > 3 and covered(line.bbox, box) > 0.5


class _Links:
    """Union-find over indices."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, index: int) -> int:
        while self._parent[index] != index:
            self._parent[index] = self._parent[self._parent[index]]
            index = self._parent[index]
        return index

    def join(self, a: int, b: int) -> None:
        self._parent[self.find(a)] = self.find(b)

    def groups(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for index in range(len(self._parent)):
            found.setdefault(self.find(index), []).append(index)
        return list(found.values())
