from __future__ import annotations

import pytest

from bench.plain_text import normalised, plain_text

pytest.importorskip("bs4")
pytest.importorskip("markdown_it")


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# A heading", "A heading"),
        ("some **bold** and *slanted* words", "some bold and slanted words"),
        ("before ![a picture](images/1.png) after", "before after"),
        ("a [link](https://example.org) stays", "a link stays"),
        ("H<sub>2</sub>O and x<sup>2</sup>", "H2O and x2"),
        ("first<br>second", "first second"),
        ("paid \\$5 \\* 2 &amp; more", "paid $5 * 2 & more"),
        ("- one\n- two", "one two"),
        ("```c\n#include <linux/io.h>\n```", "#include <linux/io.h>"),
        ("the value k <n and m> d", "the value k <n and m> d"),
    ],
)
def test_marks_go_and_words_stay(markdown: str, text: str) -> None:
    assert normalised(plain_text(markdown)) == text


def test_cells_of_both_kinds_of_table_are_separated_by_spaces() -> None:
    html = "<table><tr><td>Net</td><td>5,120</td></tr><tr><td colspan='2'>Total</td></tr></table>"
    pipes = "| Net | 5,120 |\n|---|---|\n| Total | |"
    assert normalised(plain_text(html)) == "Net 5,120 Total"
    assert normalised(plain_text(pipes)) == "Net 5,120 Total"


def test_a_word_divided_at_the_end_of_a_line_is_joined_and_a_compound_is_not() -> None:
    assert normalised("a para-\ngraph of text-based Anglo-\nSaxon") == "a paragraph of text-based Anglo- Saxon"


def test_ligatures_and_wide_forms_compare_equal_and_case_does_not() -> None:
    assert normalised("\ufb01ne \uff21") == "fine A"
    assert normalised("Fine") != normalised("fine")


def test_bullets_go_at_the_start_of_a_line_only() -> None:
    assert normalised("\u2022 one\n\u2022 two \u2022 three") == "one two \u2022 three"
