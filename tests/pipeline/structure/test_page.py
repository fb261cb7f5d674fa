"""A page's blocks: everything that was on it, in order, under its right type."""

from __future__ import annotations

from dataclasses import replace

from pipeline.page_model import Region, RegionKind, Table
from pipeline.structure.page import build_blocks, margin_notes
from tests.pipeline.structure.build import SIZE, column, line, texts

SENTENCE = "The river runs along the valley and turns to the south."


def test_paragraphs_part_at_white_space_and_at_indents() -> None:
    through = "the river runs along the valley and turns to the south and"
    lines = [*column([through, through], 60, 150), *column([through, through], 60, 190)]
    lines += [line("an indented line begins another paragraph of the same", 75, 214), line(through, 60, 226)]
    assert len(texts(build_blocks(lines, [], [], SIZE), "text")) == 3


def test_a_word_broken_at_a_line_end_is_whole_again() -> None:
    lines = column(
        ["The environment and responsi-", "bility of the river", "and a self-govern-", "ment there"], 60, 150
    )
    assert texts(build_blocks(lines, [], [], SIZE)) == [
        "The environment and responsibility of the river and a self-govern-ment there"
    ]


def test_headings_are_typed_by_size_and_weight() -> None:
    lines = [line("On Rivers", 60, 100, size=22), line("1 Introduction", 60, 140, bold=True)]
    blocks = build_blocks([*lines, *column([SENTENCE] * 4, 60, 160)], [], [], SIZE)
    assert texts(blocks, "doc_title") == ["On Rivers"]
    assert texts(blocks, "paragraph_title") == ["1 Introduction"]


def test_a_numbered_line_by_itself_is_a_heading_and_a_numbered_list_is_not() -> None:
    lines = [*column([SENTENCE] * 2, 60, 100), line("2.1. Methods", 60, 140), *column([SENTENCE] * 2, 60, 160)]
    lines += column(["1. Look for it", "2. Keep it", "3. Use it"], 60, 200)
    assert texts(build_blocks(lines, [], [], SIZE), "paragraph_title") == ["2.1. Methods"]


def test_capitals_above_text_are_a_heading_and_capitals_among_capitals_are_not() -> None:
    lines = [*column([SENTENCE] * 2, 60, 100), line("REFERENCES", 60, 140), *column(["1. Look", "2. Keep"], 60, 152)]
    lines += [*column(["THE MILL IS SOLD", "ALL OF IT"], 60, 200, pitch=20)]
    assert texts(build_blocks(lines, [], [], SIZE), "paragraph_title") == ["REFERENCES"]


def test_a_few_words_that_stand_alone_over_a_paragraph_are_a_heading() -> None:
    lines = [*column([SENTENCE] * 2, 60, 100), line("Abstract", 60, 142), *column([SENTENCE] * 4, 60, 166)]
    assert texts(build_blocks(lines, [], [], SIZE), "paragraph_title") == ["Abstract"]


def test_a_short_line_close_to_its_paragraph_is_no_heading() -> None:
    lines = [*column([SENTENCE] * 2, 60, 100), *column(["Abstract", *[SENTENCE] * 4], 60, 142)]
    assert not texts(build_blocks(lines, [], [], SIZE), "paragraph_title")


def test_authors_under_a_title_are_text_and_the_heading_below_them_is_one() -> None:
    lines = [line("On Rivers", 60, 100, size=22), line("N Miller", 60, 140, bold=True)]
    lines += [line("mill@river.example", 60, 160, bold=True), line("Abstract", 60, 190, bold=True)]
    blocks = build_blocks([*lines, *column([SENTENCE] * 4, 60, 210)], [], [], SIZE)
    assert texts(blocks, "paragraph_title") == ["Abstract"]


def test_levels_follow_the_numbers_and_then_the_size() -> None:
    lines = [line("1. Rivers", 60, 60, bold=True, size=14), *column([SENTENCE] * 4, 60, 80)]
    lines += [line("1.1 Their beds", 60, 140, bold=True), *column([SENTENCE] * 4, 60, 160)]
    lines += [line("Mills", 60, 220, bold=True), *column([SENTENCE] * 4, 60, 240)]
    lines += [line("Summary", 60, 300, bold=True, size=14), *column([SENTENCE] * 4, 60, 320)]
    blocks = [b for b in build_blocks(lines, [], [], SIZE) if b["type"] == "paragraph_title"]
    assert [b["level"] for b in blocks] == [2, 3, 3, 2]


def test_a_page_written_by_hand_keeps_its_lines() -> None:
    lines = column([SENTENCE] * 3, 60, 150)
    assert texts(build_blocks(lines, [], [], SIZE, by_line=True)) == [SENTENCE] * 3


def test_a_note_in_the_margin_does_not_part_its_paragraph() -> None:
    through = "the river runs along the valley and turns to the south and"
    lines = column([through] * 5, 100, 150)
    assert texts(build_blocks([*lines, line("12b", 70, 174)], [], [], SIZE)) == ["12b", " ".join([through] * 5)]


def test_labels_in_the_margin_stay_with_their_rows() -> None:
    lines = [*column([SENTENCE] * 5, 100, 150), *(line(f"{n}x", 70, 150 + 12 * n) for n in range(5))]
    assert "0x The river" in texts(build_blocks(lines, [], [], SIZE))[0]


def test_a_large_first_line_reads_on_where_sizes_are_measured() -> None:
    first = replace(line("the river runs along the valley and turns south", 60, 148, size=14), score=0.98)
    rest = [
        replace(one, score=0.98) for one in column(["and then it goes to the north and on to the sea"] * 3, 60, 164)
    ]
    assert len(texts(build_blocks([first, *rest], [], [], SIZE))) == 1


def test_rows_of_dots_are_not_text_and_leaders_are() -> None:
    lines = [*column([SENTENCE] * 2, 60, 150), line("." * 40, 60, 190), line(". . . . . . . .", 60, 210)]
    lines += [line("Mills", 60, 240), line("." * 30, 90, 240), line("12", 245, 240)]
    said = texts(build_blocks([*lines, *column([SENTENCE] * 2, 60, 270)], [], [], SIZE))
    assert [text.count(".") > 8 for text in said] == [False, True, False]


def test_a_heading_over_two_lines_is_one() -> None:
    lines = [line("On rivers and the valleys that", 60, 100, size=20), line("they run along", 60, 124, size=20)]
    blocks = build_blocks([*lines, *column([SENTENCE] * 6, 60, 170)], [], [], SIZE)
    assert texts(blocks, "doc_title") == ["On rivers and the valleys that they run along"]


def test_entries_of_a_table_of_contents_stay_apart() -> None:
    lines = column(["What it is ............ 8", "Where it runs ......... 9", "When it is dry ....... 12"], 60, 150)
    assert len(texts(build_blocks(lines, [], [], SIZE), "text")) == 3


def test_a_caption_is_typed() -> None:
    blocks = build_blocks(
        [line("Figure 3: The river in spring.", 60, 300), *column([SENTENCE] * 4, 60, 340)], [], [], SIZE
    )
    assert texts(blocks, "caption") == ["Figure 3: The river in spring."]


def test_a_tables_text_is_not_said_twice() -> None:
    table = Table((60.0, 200.0, 400.0, 260.0), "<table><tbody><tr><td>Oak</td><td>5</td></tr></tbody></table>")
    lines = [*column([SENTENCE] * 3, 60, 150), line("Oak", 70, 210), line("5", 300, 210), line(SENTENCE, 60, 280)]
    blocks = build_blocks(lines, [], [table], SIZE)
    assert [b["type"] for b in blocks] == ["text", "table", "text"]
    assert "Oak" not in " ".join(texts(blocks))


def test_a_figures_words_go_with_the_figure() -> None:
    figure = Region(RegionKind.FIGURE, (60.0, 200.0, 400.0, 400.0), 1.0)
    blocks = build_blocks([*column([SENTENCE] * 3, 60, 150), line("x axis", 200, 380)], [figure], [], SIZE)
    assert [(b["type"], b["content"]) for b in blocks[1:]] == [("image", "x axis")]


def test_prose_that_a_model_took_for_a_figure_stays_text() -> None:
    figure = Region(RegionKind.FIGURE, (50.0, 140.0, 500.0, 300.0), 0.9)
    blocks = build_blocks(column([SENTENCE] * 12, 60, 150), [figure], [], SIZE)
    assert {b["type"] for b in blocks} == {"text"}


def test_no_line_is_lost_whatever_the_regions_say() -> None:
    lines = [line(f"word{i} and more{i}", (i * 97) % 400, (i * 61) % 700 + 20) for i in range(40)]
    regions = [Region(kind, (100.0, 100.0, 400.0, 500.0), 0.9) for kind in RegionKind]
    blocks = build_blocks(lines, regions, [], SIZE)
    said = " ".join([*texts(blocks), *(b["content"] for b in blocks if isinstance(b["content"], str))])
    assert all(f"word{i} " in said for i in range(40))


def test_boxes_are_in_unit_coordinates_also_for_lines_that_leave_the_page() -> None:
    for block in build_blocks([line("outside", 590, 795), line("far", -20, -30)], [], [], SIZE):
        x0, y0, x1, y1 = block["bbox"]
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1


def test_an_empty_page_has_no_blocks() -> None:
    assert build_blocks([], [], [], SIZE) == []


def test_a_note_along_the_margin_is_aside_text() -> None:
    words = line("arXiv 1 Jan 2022", 20, 300).words
    assert [b["type"] for b in margin_notes(words, SIZE)] == ["aside_text"]
