"""Runs of list items: which paragraphs make one list, how deep each item stands, and its mark in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.structure.marks import Mark
from pipeline.structure.paragraphs import Paragraph

_INDENT = 0.9
"""Font sizes by which the marks of one level may stand apart: numbers of two digits begin further left."""

_MARKDOWN_NUMBER = re.compile(r"^[0-9]{1,9}[.)]\s")


@dataclass(frozen=True, slots=True)
class ListItem:
    """One item of a list.

    Attributes:
        index: of its paragraph.
        depth: 0 for the outermost level.
        mark: what it begins with.
        margin: characters by which its line is indented in Markdown.
    """

    index: int
    depth: int
    mark: Mark
    margin: int


@dataclass(slots=True)
class _Level:
    left: float
    marks: list[Mark] = field(default_factory=list)
    margin: int = 0


def find_lists(found: Sequence[Paragraph], may_be_item: Sequence[bool]) -> list[list[ListItem]]:
    """Group paragraphs into lists.

    Args:
        found: the paragraphs of one column, from the top.
        may_be_item: for each of them, False if it is something else (a heading, a caption).

    Returns:
        The items of each list: bullets, or numbers and letters that count up, nested by their indents. A
        number by itself makes no list; a sign that is nothing but a bullet does.
    """
    lists: list[list[ListItem]] = []
    run: list[ListItem] = []
    levels: list[_Level] = []

    def finish() -> None:
        if len(run) > 1 or (run and run[0].mark.unmistakable):
            lists.append(list(run))
        run.clear()
        levels.clear()

    for index, paragraph in enumerate(found):
        marks = list(paragraph.marks) if may_be_item[index] else []
        if not marks:
            finish()
            continue
        depth = _depth(paragraph, marks, levels)
        if depth is None:
            finish()
            depth = 0
        if depth == len(levels):
            margin = levels[-1].margin + _width(levels[-1].marks[0]) if levels else 0
            levels.append(_Level(paragraph.bbox[0], marks, margin))
        else:
            del levels[depth + 1 :]
            levels[depth].marks = [m for m in marks if any(m.follows(last) for last in levels[depth].marks)]
        run.append(ListItem(index, depth, levels[depth].marks[0], levels[depth].margin))
    finish()
    return lists


def item_spans(item: ListItem, content: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The spans of an item with a mark that Markdown knows: bullets become hyphens, numbers stay, the rest gets one."""
    spans = [dict(span) for span in content]
    margin = " " * item.margin
    if item.mark.bullet:
        _drop(spans, len(item.mark.text))
        return [{"type": "text", "content": f"{margin}- "}, *spans]
    prefix = margin if _is_number(item.mark) else f"{margin}- "
    return [{"type": "text", "content": prefix}, *spans] if prefix else spans


def _depth(paragraph: Paragraph, marks: Sequence[Mark], levels: Sequence[_Level]) -> int | None:
    """The level that the paragraph goes on or opens; None if it does neither."""
    if not levels:
        return 0
    reach = _INDENT * paragraph.font_size
    left = paragraph.bbox[0]
    for depth in range(len(levels) - 1, -1, -1):
        if abs(levels[depth].left - left) <= reach:
            follows = any(mark.follows(last) for mark in marks for last in levels[depth].marks)
            return depth if follows else None
    if left > levels[-1].left + reach and any(mark.opens for mark in marks):
        return len(levels)
    return None


def _is_number(mark: Mark) -> bool:
    return bool(_MARKDOWN_NUMBER.match(f"{mark.text} "))


def _width(mark: Mark) -> int:
    """Characters that a nested item must be indented by, to stand below this one's text."""
    return len(mark.text) + 1 if _is_number(mark) else 2


def _drop(spans: list[dict[str, Any]], count: int) -> None:
    """Take the first `count` characters, and the white space after them, away."""
    while spans:
        inner = spans[0].get("content")
        if isinstance(inner, list):
            return
        text = str(inner)
        cut = min(count, len(text))
        count -= cut
        text = text[cut:]
        if not count:
            text = text.lstrip()
        if text:
            spans[0]["content"] = text
            if not count:
                return
        else:
            spans.pop(0)
