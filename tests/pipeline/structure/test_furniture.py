"""Running heads, feet and page numbers leave the text; text does not."""

from __future__ import annotations

import pytest

from pipeline.page_model import Region, RegionKind
from pipeline.structure.furniture import find_furniture
from tests.pipeline.structure.build import SIZE, column, line

BODY = column(["The river runs along the valley and turns to the south at the old mill."] * 20, 60, 150)


def test_a_running_head_and_a_page_number_are_found() -> None:
    lines = [line("Journal of Rivers 12 (2005)", 60, 40, size=8), *BODY, line("17", 300, 760)]
    found = find_furniture(lines, [], SIZE)
    assert found.headers == {0}
    assert found.page_numbers == {len(lines) - 1}
    assert not found.footers


def test_a_foot_of_three_parts_is_found_whole() -> None:
    foot = [line("River Letters", 60, 760, size=8), line("3", 300, 760, size=8), line("March", 500, 760, size=8)]
    found = find_furniture([*BODY, *foot], [], SIZE)
    assert found.footers == {len(BODY), len(BODY) + 2}
    assert found.page_numbers == {len(BODY) + 1}


@pytest.mark.parametrize("number", ["- 12 -", "Page 3 of 9", "xiv", "7 / 20", "A-4"])
def test_page_numbers_come_in_many_dresses(number: str) -> None:
    assert find_furniture([*BODY, line(number, 280, 765)], [], SIZE).page_numbers == {len(BODY)}


def test_a_page_number_is_found_where_the_text_ends_high_on_the_sheet() -> None:
    assert find_furniture([*BODY, line("62", 300, 430)], [], SIZE).page_numbers == {len(BODY)}


def test_text_that_fills_the_page_is_text() -> None:
    lines = column(["The river runs along the valley and turns to the south at the old mill."] * 62, 60, 30)
    assert not find_furniture(lines, [], SIZE).all


def test_a_large_title_at_the_top_is_no_running_head() -> None:
    assert not find_furniture([line("On Rivers", 60, 30, size=22), *BODY], [], SIZE).all


TITLE = line("River Letters of March", 60, 50)


@pytest.mark.parametrize("kind", list(RegionKind))
def test_a_first_line_like_the_text_is_no_running_head(kind: RegionKind) -> None:
    lines = [TITLE, *column(["The river runs along the valley."] * 5, 60, 85)]
    unsure = Region(kind, TITLE.bbox, 0.36)
    assert not find_furniture(lines, [unsure], SIZE).all


def test_a_first_line_like_the_text_is_a_running_head_where_a_rule_parts_it_from_the_text() -> None:
    assert find_furniture([TITLE, *BODY], [], SIZE, rules=[(60.0, 64.0, 540.0, 65.0)]).headers == {0}


def test_a_line_apart_from_the_text_is_a_running_head_where_the_page_has_a_number_at_its_foot() -> None:
    assert find_furniture([TITLE, *BODY, line("17", 300, 760)], [], SIZE).headers == {0}


def test_a_line_that_the_layout_model_is_sure_of_is_a_running_head() -> None:
    lines = [TITLE, *column(["The river runs along the valley."] * 5, 60, 85)]
    assert find_furniture(lines, [Region(RegionKind.HEADER, TITLE.bbox, 0.8)], SIZE).headers == {0}


def test_a_letterhead_written_by_hand_is_text() -> None:
    lines = [TITLE, *BODY, line("43571", 60, 770)]
    assert not find_furniture(lines, [Region(RegionKind.HEADER, TITLE.bbox, 0.8)], SIZE, written=True).all
