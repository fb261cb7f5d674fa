"""A page is read as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.page_model import BBox
from pipeline.structure.order import Item, reading_order


def order(boxes: Mapping[str, BBox], headings: str = "", atomic: str = "") -> list[str]:
    names = list(boxes)
    items = [Item(i, boxes[n], heading=n in headings, atomic=n in atomic) for i, n in enumerate(names)]
    return [names[i] for column in reading_order(items[::-1], 10) for i in column]


def stack(names: str, x0: float, x1: float, top: float) -> dict[str, BBox]:
    return {name: (x0, top + 12 * i, x1, top + 12 * i + 10) for i, name in enumerate(names)}


def test_two_columns_are_read_one_after_the_other() -> None:
    assert order(stack("abc", 50, 280, 100) | stack("def", 310, 540, 100)) == list("abcdef")


def test_a_title_over_two_columns_comes_first_and_a_line_under_them_last() -> None:
    page = {"T": (50, 50, 540, 70)} | stack("abc", 50, 280, 100) | stack("def", 310, 540, 100)
    assert order(page | {"Z": (50, 160, 540, 170)}) == ["T", *"abcdef", "Z"]


def test_columns_may_change_their_gutter_down_the_page() -> None:
    upper = stack("abc", 50, 280, 100) | stack("def", 310, 540, 100)
    lower = stack("ghi", 50, 380, 220) | stack("jkl", 410, 540, 220)
    assert order(upper | {"T": (50, 180, 540, 200)} | lower) == [*"abcdef", "T", *"ghijkl"]


def test_the_heading_of_the_next_article_does_not_belong_to_the_column_above_it() -> None:
    upper = stack("abc", 50, 280, 100) | stack("def", 310, 540, 100)
    assert order(upper | {"H": (50, 200, 150, 212), "T": (50, 220, 540, 240)}) == [*"abcdef", "H", "T"]


def test_a_heading_under_one_column_belongs_to_the_wide_text_close_below_it() -> None:
    page = stack("abc", 50, 280, 100) | stack("def", 310, 540, 100)
    page |= {"H": (50, 142, 150, 152)} | stack("TUV", 50, 540, 154)
    assert order(page, headings="H") == [*"abcdef", *"HTUV"]
    assert order(page) == [*"abcH", *"def", *"TUV"]


def test_a_longer_column_stays_whole() -> None:
    assert order(stack("abc", 50, 280, 100) | stack("defghij", 310, 540, 100)) == list("abcdefghij")


def test_cards_are_read_row_by_row() -> None:
    page = stack("Aab", 50, 280, 100) | stack("Bcd", 310, 540, 100)
    page |= stack("Cef", 50, 280, 170) | stack("Dgh", 310, 540, 170)
    assert order(page, headings="ABCD") == list("AabBcdCefDgh")


def test_columns_without_headings_side_by_side_are_no_cards() -> None:
    page = stack("Aab", 50, 280, 100) | stack("Bcd", 310, 540, 100)
    page |= stack("Cef", 50, 280, 170) | stack("Dgh", 310, 540, 170)
    assert order(page) == list("AabCefBcdDgh")


def test_labels_are_read_with_what_stands_beside_them() -> None:
    labels = {"l": (50, 100, 120, 110), "m": (50, 112, 120, 122)}
    assert order(labels | stack("abc", 200, 500, 100)) == list("lambc")


def test_keys_of_a_bibliography_stay_with_their_entries() -> None:
    keys = {"k": (50, 100, 100, 110), "l": (50, 136, 100, 146), "m": (50, 172, 100, 182)}
    assert order(keys | stack("abcdefghi", 120, 500, 100)) == list("kabcldefmghi")


def test_a_picture_keeps_its_column() -> None:
    page = stack("abc", 50, 280, 100) | {"P": (50, 140, 280, 300)} | stack("defghijk", 310, 540, 100)
    assert order(page, atomic="P") == [*"abc", "P", *"defghijk"]


def test_nothing_is_lost_or_doubled_on_a_page_of_overlapping_boxes() -> None:
    page = {chr(97 + i): ((i * 37) % 300, (i * 53) % 400, (i * 37) % 300 + 150, (i * 53) % 400 + 30) for i in range(20)}
    assert sorted(order(page)) == sorted(page)
