"""Page selections mean what people expect, and nonsense is refused with an example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import BadPageRange
from pipeline.page_range import select_pages


@pytest.mark.parametrize(
    ("selection", "pages"),
    [
        ("", (0, 1, 2, 3, 4)),
        ("1", (0,)),
        ("2-4", (1, 2, 3)),
        ("4-", (3, 4)),
        ("-2", (0, 1)),
        ("5,1", (0, 4)),
        ("1-2, 2-3", (0, 1, 2)),
        ("4-99", (3, 4)),
    ],
)
def test_selections(selection: str, pages: tuple[int, ...]) -> None:
    assert select_pages(selection, 5) == pages


@pytest.mark.parametrize("selection", ["0", "3-1", "a", "1;2", "-", ",", "1--2", "9", "1-2-3"])
def test_nonsense_and_pages_beyond_the_end_are_refused(selection: str) -> None:
    with pytest.raises(BadPageRange):
        select_pages(selection, 5)


@given(st.text(max_size=12), st.integers(1, 50))
def test_any_text_gives_valid_pages_or_the_typed_error(selection: str, count: int) -> None:
    try:
        pages = select_pages(selection, count)
    except BadPageRange:
        return
    assert pages
    assert list(pages) == sorted(set(pages))
    assert 0 <= pages[0] <= pages[-1] < count
