"""Headings: which paragraphs are, which of them names the document, who stands under it, how deep each lies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pipeline.page_model import Block, Region, RegionKind
from pipeline.structure.geometry import said
from pipeline.structure.inline import text_of
from pipeline.structure.paragraphs import NUMBERED_TITLE, Paragraph

ALONE_WORDS = 5
ALONE_CHARS = 40
CAPITALS_WORDS = 12
"""Longest heading that nothing but its place, or nothing but its capitals, makes one."""

_SAME_SIZE = 1.15
"""Headings whose sizes differ by less are of one level; on scans sizes are measured no better."""

_DEEPEST_BY_SIZE = 4
_DEEPEST = 6
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def is_heading(found: Sequence[Paragraph], number: int, regions: Sequence[Region], body: float) -> bool:
    """Whether a paragraph is a heading.

    Args:
        found: the paragraphs of its column, from the top.
        number: its place among them.
        regions: what the layout model saw, points.
        body: the page's font size, points.
    """
    paragraph = found[number]
    words = len(paragraph.text.split())
    letters = sum(c.isalpha() for c in paragraph.text)
    if letters < 3 or "=" in paragraph.text or words > 25 or len(paragraph.lines) > 3:
        return False
    larger = paragraph.font_size >= 1.2 * body
    numbered = bool(NUMBERED_TITLE.match(paragraph.text))
    if paragraph.item and not numbered:
        return False
    if paragraph.text.rstrip()[-1:] in ".,;" and (not larger or words > 8):
        return False
    if numbered and len(paragraph.lines) == 1 and words <= 12 and _stands_apart(found, number):
        # Set like the text, but numbered and by itself: "2.1. Methods", "III. RESULTS".
        return True
    if _in_capitals(paragraph) and words <= CAPITALS_WORDS and _has_room(found, number):
        # Capitals above text that is not set in them.
        return not _in_capitals(found[number + 1])
    if _stands_alone(found, number):
        return True
    by_model = said(paragraph.bbox, regions, (RegionKind.TITLE,))
    if paragraph.bold is None:
        return (by_model and (numbered or paragraph.font_size >= 0.95 * body)) or (
            larger and paragraph.font_size >= 1.4 * body
        )
    if paragraph.bold:
        return paragraph.font_size >= 0.95 * body and words <= 18
    if larger:
        return True
    return by_model and (numbered or paragraph.font_size > 1.04 * body or paragraph.text.isupper())


def rank_headings(blocks: Sequence[Block], sizes: Sequence[float], body: float) -> None:
    """Find the document's title and its authors among the headings of a page, and give the rest their levels.

    Args:
        blocks: of the page, in reading order; types and levels are set in place.
        sizes: the font size of each block, points; 0 where it has none.
        body: the page's font size, points.
    """
    _type_document_title(blocks, sizes, body)
    titles = [i for i, block in enumerate(blocks) if block["type"] == "paragraph_title"]
    known = {i: _numbered_level(text_of(blocks[i]["content"])) for i in titles}
    classes: list[float] = []
    for size in sorted((sizes[i] for i in titles), reverse=True):
        if not classes or size * _SAME_SIZE < classes[-1]:
            classes.append(size)

    def rank(size: float) -> int:
        return next(n for n, largest in enumerate(classes) if size * _SAME_SIZE >= largest)

    anchors: dict[int, list[int]] = {}
    for i, level in known.items():
        if level:
            anchors.setdefault(rank(sizes[i]), []).append(level)
    for i in titles:
        level = known[i]
        if level is None:
            # As deep as the numbered headings of its size; without those, as its size says.
            own = rank(sizes[i])
            above = [max(anchors[r]) + own - r for r in anchors if r < own]
            level = min(anchors[own]) if own in anchors else max(above, default=min(2 + own, _DEEPEST_BY_SIZE))
        blocks[i]["level"] = min(level, _DEEPEST)


def _stands_apart(found: Sequence[Paragraph], number: int) -> bool:
    """Whether a paragraph has white space over it, text under it, and no neighbour that is numbered too."""
    if not _has_room(found, number):
        return False
    # Items come in rows of one depth; under a heading stands text, or a heading one level down.
    depth = _depth(found[number].text)
    neighbours = [*found[max(0, number - 1) : number], found[number + 1]]
    return not any(n.item and _depth(n.text) == depth for n in neighbours)


def _has_room(found: Sequence[Paragraph], number: int) -> bool:
    """White space over it, and text under it."""
    paragraph = found[number]
    height = paragraph.lines[0].bbox[3] - paragraph.lines[0].bbox[1]
    if number + 1 >= len(found):
        return False
    return number == 0 or paragraph.bbox[1] - found[number - 1].bbox[3] >= 0.5 * height


def _depth(text: str) -> int:
    return len(re.findall(r"[0-9]+|[A-Za-z]+", text.split(maxsplit=1)[0]))


def _in_capitals(paragraph: Paragraph) -> bool:
    return paragraph.text.isupper() and sum(c.isupper() for c in paragraph.text) >= 4


def _stands_alone(found: Sequence[Paragraph], number: int) -> bool:
    """A few words with white space above and below, over a paragraph of several lines: "Abstract"."""
    if not 0 <= number < len(found) - 1:
        return False
    paragraph, below = found[number], found[number + 1]
    text = paragraph.text.strip()
    if len(paragraph.lines) > 1 or len(below.lines) < 3 or below.item or not text[:1].isalpha():
        return False
    ideographic = bool(_IDEOGRAPH.search(text))
    if len(text) > (ALONE_CHARS // 2 if ideographic else ALONE_CHARS) or len(text.split()) > ALONE_WORDS:
        return False
    if not (text[0].isupper() or ideographic) or not (text[-1].isalpha() and all(c not in ",;@/" for c in text)):
        return False
    if not ideographic and any(c.isdigit() for c in text):
        return False
    height = paragraph.bbox[3] - paragraph.bbox[1]
    pitch = below.lines[1].bbox[3] - below.lines[0].bbox[3]
    gap = below.lines[0].bbox[3] - paragraph.bbox[3]
    narrow = paragraph.bbox[2] - paragraph.bbox[0] < 0.5 * (below.bbox[2] - below.bbox[0])
    clear = number == 0 or paragraph.bbox[1] - found[number - 1].bbox[3] > 0.8 * height
    return narrow and clear and gap > pitch + 0.3 * height


def _type_document_title(blocks: Sequence[Block], sizes: Sequence[float], body: float) -> None:
    """The largest heading, near the top and clearly larger than the text, names the document."""
    titles = [i for i, b in enumerate(blocks) if b["type"] == "paragraph_title" and b["bbox"][1] < 0.5]
    if not titles:
        return
    first = max(titles, key=lambda i: (sizes[i], -i))
    top = blocks[first]["bbox"][1]
    numbered = NUMBERED_TITLE.match(text_of(blocks[first]["content"]))
    if sizes[first] >= 1.5 * body or (sizes[first] >= 1.25 * body and top < 0.2 and not numbered):
        blocks[first]["type"] = "doc_title"
        _type_authors(blocks[first + 1 :])


def _type_authors(below: Sequence[Block]) -> None:
    """Names and addresses under a title are text; the first heading that text stands under ends them."""
    for number, block in enumerate(below):
        follower = below[number + 1] if number + 1 < len(below) else None
        prose = follower is not None and follower["type"] == "text" and len(follower.get("lines", ())) >= 3
        if block["type"] == "paragraph_title":
            marked = _has_author_marks(block["content"])
            if not marked and (prose or not _is_name(text_of(block["content"]))):
                return
            block["type"] = "text"
        elif block["type"] != "text" or len(block.get("lines", ())) > 3:
            return


def _has_author_marks(content: Sequence[dict[str, Any]]) -> bool:
    """The marks of footnotes, several commas, or the address of a mailbox."""
    text = text_of(content)
    return any("superscript" in span.get("styles", ()) for span in content) or text.count(",") >= 2 or "@" in text


def _is_name(text: str) -> bool:
    """Two to five words, each with a capital letter and small ones or an initial: "N Hirschhorn"."""
    words = text.split()
    proper = [w for w in words if re.fullmatch(r"[^\W\d_]\.?|[^\W\d_a-z][^\W\d_]*[a-z][\w'’\-]*", w) and w[0].isupper()]
    return 2 <= len(words) <= 5 and len(proper) == len(words)


def _numbered_level(text: str) -> int | None:
    """2 for "3. Results", 3 for "3.1 Rivers"; None for a heading without a number."""
    found = re.match(r"^([0-9]{1,2}(?:\.[0-9]{1,2}){0,4})\.?\s+\S", text)
    if found:
        return 2 + found.group(1).count(".")
    return 2 if re.match(r"^[IVX]{1,5}\.\s+\S", text) else None
