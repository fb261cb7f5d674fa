"""Running headers, running footers and page numbers: what belongs to the sheet, not to the text.

One page alone shows them by place and isolation together with one thing more: a page number, smaller type, a
rule, or a voice of the layout model. Place and isolation alone are weak: so stands the title of a letter too.
(Repetition over pages is seen where several pages are at hand, in the flash route.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.page_model import BBox, Region, RegionKind, TextLine
from pipeline.structure.geometry import body_size, covered, line_height, same_row, union

MARGIN = 0.12
"""Share of the page's height, at the top and at the bottom, in which furniture is looked for."""

PAGE_NUMBER = re.compile(
    r"^[\s\-–—|\[\(]*(?:(?:page|seite|p\.|第)\s*)?(?:[0-9]{1,4}|[ivxlc]{1,7}|[A-Z]{0,2}-?[0-9]{1,3})"
    r"(?:\s*(?:of|/|von|页)\s*[0-9]{0,4})?[\s\-–—|\]\)]*$",
    re.IGNORECASE,
)


MAX_CHARS = 160
"""Longest running head."""

SMALLER = 0.92
"""Share of the text's font size under which a row is set in smaller type."""

LAYOUT_SCORE = 0.5
"""Confidence from which the layout model's headers and footers count."""

_RULE_WIDTH = 0.2
"""Share of the page's width from which a rule parts the text from what is no text."""


@dataclass(frozen=True, slots=True)
class Furniture:
    """What was found: line numbers (indices into the page's lines) by kind."""

    headers: frozenset[int]
    footers: frozenset[int]
    page_numbers: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.headers | self.footers | self.page_numbers


def find_furniture(
    lines: Sequence[TextLine],
    regions: Sequence[Region],
    size_pt: tuple[float, float],
    solid: Sequence[BBox] = (),
    rules: Sequence[BBox] = (),
    written: bool = False,
) -> Furniture:
    """Tell furniture from text.

    Args:
        lines: the page's lines, points.
        regions: what the layout model saw; its headers and footers are one voice among others.
        size_pt: the page's size, points.
        solid: boxes of tables and pictures, which are content.
        rules: horizontal rules, points.
        written: by hand; then only what stands with a page number is furniture.
    """
    headers: set[int] = set()
    footers: set[int] = set()
    numbers: set[int] = set()
    rows = _rows(lines)
    if len(rows) < 2:
        return Furniture(frozenset(), frozenset(), frozenset())
    sheet = _Sheet(
        lines, regions, size_pt, solid, rules, body_size(lines), line_height(lines), _usual_gap(rows, lines), written
    )
    foot = _outer_rows(rows, sheet, from_top=False)
    head = _outer_rows(rows, sheet, from_top=True, other_end=_holds_number(foot, lines))
    if _holds_number(head, lines) and not foot:
        foot = _outer_rows(rows, sheet, from_top=False, other_end=True)
    for chosen, found in ((head, headers), (foot, footers)):
        for index in (i for row in chosen for i in row):
            (numbers if PAGE_NUMBER.match(lines[index].text) else found).add(index)
    return Furniture(frozenset(headers), frozenset(footers), frozenset(numbers))


@dataclass(frozen=True, slots=True)
class _Sheet:
    lines: Sequence[TextLine]
    regions: Sequence[Region]
    size_pt: tuple[float, float]
    solid: Sequence[BBox]
    rules: Sequence[BBox]
    body: float
    pitch: float
    usual_gap: float
    written: bool


def _usual_gap(rows: list[list[int]], lines: Sequence[TextLine]) -> float:
    """The white space that usually parts one paragraph from the next; 0 where there is none."""
    boxes = [union(lines[i].bbox for i in row) for row in rows]
    pitch = line_height(lines)
    white = sorted(b[1] - a[3] for a, b in pairwise(boxes[1:-1]) if b[1] - a[3] > 0.6 * pitch)
    return white[len(white) // 2] if white else 0.0


def _has_page_number(text: str) -> bool:
    return bool(PAGE_NUMBER.match(text)) and any(c.isdigit() or c in "ivxlcIVXLC" for c in text)


def _holds_number(rows: list[list[int]], lines: Sequence[TextLine]) -> bool:
    return any(_has_page_number(lines[i].text) for row in rows for i in row)


def _rows(lines: Sequence[TextLine]) -> list[list[int]]:
    rows: list[list[int]] = []
    for index in sorted(range(len(lines)), key=lambda i: lines[i].bbox[1]):
        if rows and same_row(lines[rows[-1][0]].bbox, lines[index].bbox):
            rows[-1].append(index)
        else:
            rows.append([index])
    return rows


def _outer_rows(rows: list[list[int]], sheet: _Sheet, *, from_top: bool, other_end: bool = False) -> list[list[int]]:
    """The rows at one end of the page that are furniture, from the edge inwards.

    Args:
        other_end: the page has its number at its other end.
    """
    lines, pitch = sheet.lines, sheet.pitch
    ordered = rows if from_top else rows[::-1]
    kind = RegionKind.HEADER if from_top else RegionKind.FOOTER
    claimed = [r.bbox for r in sheet.regions if r.kind is kind and r.score >= LAYOUT_SCORE]
    page_height = sheet.size_pt[1]
    accepted: list[list[int]] = []
    pending: list[list[int]] = []
    numbered = False
    for position, row in enumerate(ordered[:4]):
        box = union(lines[i].bbox for i in row)
        depth = box[3] / page_height if from_top else 1 - box[1] / page_height
        if any(covered(box, other) > 0.5 for other in sheet.solid) or position + 1 >= len(ordered):
            break
        inner = union(lines[i].bbox for i in ordered[position + 1])
        gap = (inner[1] - box[3]) if from_top else (box[1] - inner[3])
        size = max(lines[i].font_size or lines[i].bbox[3] - lines[i].bbox[1] for i in row)
        text = " ".join(lines[i].text for i in row)
        number = any(_has_page_number(lines[i].text) for i in row)
        lonely_number = len(row) == 1 and number
        numbered = numbered or number
        said = any(covered(box, region) > 0.6 for region in claimed)
        in_margin = depth <= MARGIN
        pending.append(row)
        if size > 1.35 * sheet.body and not (in_margin and lonely_number):
            break
        clear = gap > 1.1 * pitch and len(text) <= MAX_CHARS
        # A foot that looks like text is no loss to the text; a head may be its title.
        edge = depth <= (0.09 if from_top else 0.075) and gap > 1.5 * max(pitch, sheet.usual_gap)
        marked = numbered or (
            not sheet.written
            and (
                size < SMALLER * sheet.body
                or _ruled(box, inner, sheet)
                or (said and clear)
                or (edge and (other_end or not from_top) and not any(lines[i].bold for i in row))
            )
        )
        # A document printed into a corner of the sheet has its page number where its text ends.
        ends_text = lonely_number and gap > 0.9 * pitch and (in_margin or not from_top)
        if not (ends_text or (in_margin and marked and (clear or (said and not sheet.written)))):
            if in_margin and depth <= 0.06 and gap > 0.25 * pitch:
                # One of several rows of furniture: judged by what follows.
                continue
            break
        accepted.extend(pending)
        pending = []
    return accepted


def _ruled(box: BBox, inner: BBox, sheet: _Sheet) -> bool:
    """Whether a rule runs between an outer row and the text."""
    low, high = min(box[3], inner[3]) - 2, max(box[1], inner[1]) + 2
    wide = _RULE_WIDTH * sheet.size_pt[0]
    between = [r for r in sheet.rules if low <= r[1] <= high and r[2] - r[0] >= wide]
    return any(r[0] < box[2] and box[0] < r[2] for r in between)
