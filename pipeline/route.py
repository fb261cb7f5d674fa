"""AUTO: which route a page takes, from a cheap look at the page itself.

A sound text layer is better than any recognition, and the layout route reads it best: it keeps columns apart,
rebuilds tables without frames, and costs a third of flash. Flash has what needs a closer look at its letters:
scripts that run from right to left, pages turned on their side. OCR is for what has no text to trust.

Where an engine is configured, pages go to the vlm route that gain by it: what would go to OCR, and pages with tables
or with formulas that are stacked. Plain prose stays: its text is in the file, and a model could only change it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from pipeline.page_model import BBox, Route, RouteDecision
from pipeline.page_source import PageSource
from pipeline.structure.formulas import find_formulas
from pipeline.structure.geometry import area, covered
from pipeline.structure.lattice import bounds, find_frames
from pipeline.structure.table_regions import find_tables
from pipeline.text_layer import TextLayer

UNDECODABLE = 0.2
"""Share of characters without meaning from which a text layer is garbage."""

PAGE_SIZED = 0.6
"""Share of the page that pictures cover from which the page is one."""

LITTLE_TEXT = 400
"""Characters; over a page-sized picture, less is a caption on a poster, a stamp, a page number."""

INVISIBLE = 0.5
"""Share of text drawn invisibly from which it is an OCR layer laid over a scan."""

RIGHT_TO_LEFT = 0.2
"""Share of letters of right-to-left scripts."""

SIDEWAYS = 0.4
"""Share of characters that do not run from left to right."""

_CELLS = 4
"""Pieces of text that a frame holds at least, to be that of a table."""

_SAMPLE = 4000


def choose(page: PageSource, *, engine: bool = False) -> RouteDecision:
    """Decide for one page.

    Costs some tens of milliseconds for the text layer, which the layout route then has for nothing.

    Args:
        page: any page; nothing is rendered.
        engine: whether there is one, and thus a vlm route.
    """
    decision = _without_engine(page)
    if not engine:
        return decision
    if decision.route is Route.OCR:
        return RouteDecision(Route.VLM, decision.why)
    if decision.route is Route.LAYOUT and (gains := _gains(page)):
        return RouteDecision(Route.VLM, gains)
    return decision


def _gains(page: PageSource) -> str:
    """What a born-digital page has that a model reads better than rules do; empty for none."""
    lines, drawn = page.text.lines, page.drawings
    tables = [bounds(frame) for frame in find_frames(drawn.horizontal, drawn.vertical)]
    tables = [box for box in tables if sum(covered(line.bbox, box) > 0.5 for line in lines) >= _CELLS]
    tables += find_tables(lines, drawn.horizontal, page.text.slanted)
    formulas = find_formulas(lines, drawn.horizontal, [*tables, *drawn.images])
    found = [name for name, there in (("tables", tables), ("formulas", formulas)) if there]
    return f"sound text layer with {' and '.join(found)}" if found else ""


def _without_engine(page: PageSource) -> RouteDecision:
    text = page.text
    pictured = _covered_share(page.drawings.images, page.size_pt)
    if text.chars == 0:
        if pictured > 0 or page.drawings.shapes:
            return RouteDecision(Route.OCR, "no text layer")
        # Blank, or rules and boxes only: nothing to recognise.
        return RouteDecision(Route.LAYOUT, "nothing but white")
    if text.undecodable > UNDECODABLE:
        return RouteDecision(Route.OCR, f"text layer is garbage ({text.undecodable:.0%} undecodable)")
    if text.invisible > INVISIBLE and pictured > 0.3:
        return RouteDecision(Route.OCR, "invisible text over a picture")
    if pictured > PAGE_SIZED and text.chars < LITTLE_TEXT and not _prose(text):
        return RouteDecision(Route.OCR, f"{text.chars} characters over a page-sized picture")
    slanted = sum(len(word.text) for word in text.slanted) / text.chars
    if slanted > SIDEWAYS:
        return RouteDecision(Route.FLASH, "text runs sideways")
    sample = _sample(text)
    if _share(sample, _implausible) > UNDECODABLE:
        return RouteDecision(Route.OCR, "text layer is no language")
    if _share(sample, _is_right_to_left) > RIGHT_TO_LEFT:
        return RouteDecision(Route.FLASH, "right-to-left script")
    return RouteDecision(Route.LAYOUT, "sound text layer")


def _covered_share(boxes: Sequence[BBox], size_pt: tuple[float, float]) -> float:
    """Share of the page under pictures; overlaps counted once where it matters, that is up to the page."""
    page = max(1.0, size_pt[0] * size_pt[1])
    return min(1.0, sum(area(box) for box in _outermost(boxes)) / page)


def _outermost(boxes: Sequence[BBox]) -> list[BBox]:
    kept: list[BBox] = []
    for box in sorted(boxes, key=area, reverse=True)[:200]:
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        if not any(k[0] <= x <= k[2] and k[1] <= y <= k[3] for k in kept):
            kept.append(box)
    return kept


def _prose(text: TextLayer) -> bool:
    """Several whole lines of words: a slide or a cover that was typed, whatever lies behind it."""
    return sum(len(line.words) >= 4 for line in text.lines) >= 2


def _sample(text: TextLayer) -> str:
    letters: list[str] = []
    total = 0
    for line in text.lines:
        letters.append(line.text)
        total += len(line.text)
        if total > _SAMPLE:
            break
    return "".join(letters).replace(" ", "")


def _share(sample: str, test: Callable[[str], bool]) -> float:
    return sum(test(char) for char in sample) / len(sample) if sample else 0.0


def _implausible(char: str) -> bool:
    """Never a good part of a text: unassigned, control, private use, or from the rarest of scripts' blocks."""
    return unicodedata.category(char) in ("Cn", "Cc", "Co", "Cs")


def _is_right_to_left(char: str) -> bool:
    return unicodedata.bidirectional(char) in ("R", "AL")
