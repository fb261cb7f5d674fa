"""Page selections as people write them: `1-5,9,20-`."""

from __future__ import annotations

import re

from pipeline.errors import BadPageRange

_PART = re.compile(r"(\d+)?\s*(-)?\s*(\d+)?")


def select_pages(selection: str, page_count: int) -> tuple[int, ...]:
    """The 0-based page indices that a 1-based selection names, ascending, each once.

    "3" is one page, "2-4" a range, "7-" from there to the end, "-3" the first three; "" is all.

    Raises:
        BadPageRange: it is not written so, or names no page of this document.
    """
    if not selection.strip():
        return tuple(range(page_count))
    wanted: set[int] = set()
    for part in selection.split(","):
        wanted.update(_one_part(part.strip(), page_count))
    if not wanted:
        raise BadPageRange(f"--pages {selection!r} names no page: the document has {page_count}.")
    return tuple(sorted(wanted))


def check_selection(selection: str) -> None:
    """Raise BadPageRange if the selection is not written as `select_pages` wants it."""
    if selection.strip():
        for part in selection.split(","):
            _one_part(part.strip(), 0)


def _one_part(part: str, page_count: int) -> range:
    match = _PART.fullmatch(part)
    first, dash, last = match.groups() if match else (None, None, None)
    if first is None and last is None:
        raise BadPageRange(f"Cannot read the page selection {part!r}. Write for example 1-5,9,20-")
    start = int(first) if first else 1
    end = int(last) if last else (page_count if dash else start)
    if start < 1 or (last and end < start):
        raise BadPageRange(f"The page selection {part!r} counts backwards or from 0; pages count from 1.")
    return range(start - 1, min(end, page_count))
