"""Lists of a page are lists in Markdown."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from pipeline import mineru
from pipeline.assemble import page_markdown
from pipeline.page_model import PageModel, TextLine
from pipeline.structure.marks import read_marks
from pipeline.structure.page import build_blocks
from tests.pipeline.structure.build import SIZE, column, line

INTRODUCTION = line("The reasons why the river runs to the south are these:", 60, 138)


def markdown(lines: list[TextLine]) -> str:
    blocks = build_blocks(lines, [], [], SIZE)
    mineru.normalise(blocks)
    return page_markdown(PageModel(blocks, *SIZE))


def shape(text: str) -> str:
    """The tree of lists that a reader of the Markdown builds."""
    signs = {"bullet_list_open": "(", "ordered_list_open": "[", "list_item_open": "i"}
    signs |= {"bullet_list_close": ")", "ordered_list_close": "]"}
    return "".join(signs.get(token.type, "") for token in MarkdownIt().parse(text))


@pytest.mark.parametrize("bullet", ["•", "▪", "–", "\uf0b7", "-"])
def test_bullets_become_a_list(bullet: str) -> None:
    found = markdown([INTRODUCTION, *column([f"{bullet} Find it", f"{bullet} Keep it", f"{bullet} Use it"], 80, 150)])
    assert found.endswith("- Find it\n- Keep it\n- Use it")
    assert shape(found) == "(iii)"


def test_numbers_stay() -> None:
    found = markdown([INTRODUCTION, *column(["3. Find it", "4. Keep it", "5. Use it"], 80, 150)])
    assert found.endswith("3. Find it\n4. Keep it\n5. Use it")
    assert shape(found) == "[iii]"


@pytest.mark.parametrize("marks", ["a. b. c.", "(1) (2) (3)", "ii) iii) iv)", "[7] [8] [9]"])
def test_marks_that_markdown_does_not_know_stay_behind_a_bullet(marks: str) -> None:
    first, second, third = marks.split()
    found = markdown([INTRODUCTION, *column([f"{first} Find it", f"{second} Keep it", f"{third} Use it"], 80, 150)])
    unescaped = found.replace("\\", "")
    assert unescaped.endswith(f"- {first} Find it\n- {second} Keep it\n- {third} Use it")
    assert shape(found) == "(iii)"


def test_items_nest_by_their_indent() -> None:
    lines = [line("1. The river", 60, 150), line("a. its bed", 80, 162), line("b. its banks", 80, 174)]
    lines += [line("2. The mill", 60, 186), line("• its wheel", 80, 198)]
    assert shape(markdown([INTRODUCTION, *lines])) == "[i(ii)i(i)]"


def test_an_items_further_lines_hang_below_its_first_word() -> None:
    lines = [INTRODUCTION, line("a. Find the river where it turns to the south at", 80, 150)]
    lines += [line("the mill.", 92.5, 162), line("b. Keep it.", 80, 174), line("c. Use it.", 80, 186)]
    assert "- a. Find the river where it turns to the south at the mill.\n- b. Keep it.\n" in markdown(lines)


def test_an_indented_item_under_a_full_line_is_an_item() -> None:
    lines = [
        line("the functions say where the river stands at each time", 60, 150),
        line("a. Find its speed over the whole of time", 90, 162),
        line("b. Find its depth", 90, 174),
    ]
    assert shape(markdown(lines)) == "(ii)"


def test_references_numbered_without_a_dot_are_items_with_all_their_lines() -> None:
    lines = [line("REFERENCES", 60, 120)]
    for number in range(3):
        lines += [line(f"{number + 1} Miller N. On rivers and on mills in the valley. River", 60, 150 + 24 * number)]
        lines += [line("17 Letters 2004.", 67.5, 162 + 24 * number)]
    found = markdown(lines)
    assert "- 2 Miller N. On rivers and on mills in the valley. River 17 Letters 2004.\n- 3 " in found
    assert shape(found) == "(iii)"


@pytest.mark.parametrize(
    "texts",
    [
        ["12. of them were lost in the river of the year"],
        ["2. Look for it", "7. Keep it", "5. Use it"],
        ["- 5 degrees were measured"],
    ],
)
def test_what_does_not_count_up_is_no_list(texts: list[str]) -> None:
    blocks = build_blocks([INTRODUCTION, *column(texts, 60, 170, pitch=24)], [], [], SIZE)
    assert "list" not in {block["type"] for block in blocks}


def test_a_letter_may_be_a_numeral() -> None:
    assert {(mark.style.split()[1], mark.value) for mark in read_marks("i. Find it")} == {("letter", 9), ("roman", 1)}


@pytest.mark.parametrize("text", ["e.g. this", "3.5 metres", "A river", "I.B.M. there", "(see) it", "-5 degrees"])
def test_words_are_no_marks(text: str) -> None:
    assert read_marks(text) == []
