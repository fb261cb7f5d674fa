"""Tables without a frame come out with their rows, columns and spans."""

from __future__ import annotations

from pipeline.page_model import BBox, TextLine, Word
from pipeline.structure.geometry import covered
from pipeline.structure.grid import build_table
from pipeline.structure.table_regions import find_tables
from tests.pipeline.structure.build import column, grid, line, right

YEARS = [right("2024", 300, 100), right("2023", 380, 100)]


def rows(*cells: tuple[str, str, str], top: float = 116.0, pitch: float = 14.0) -> list[TextLine]:
    lines = []
    for number, (label, *values) in enumerate(cells):
        y = top + pitch * number
        lines.append(line(label, 60, y))
        lines += [right(value, x, y) for value, x in zip(values, (300, 380), strict=True) if value]
    return lines


ACCOUNTS = rows(("Revenue", "1,200", "1,100"), ("Cost of revenue", "(700)", "—"), ("Total", "500", "1,100"))


def test_labels_numbers_and_heads_become_a_grid() -> None:
    table = build_table([*YEARS, *ACCOUNTS])
    assert table is not None
    assert grid(table.html) == [
        ["", "2024", "2023"],
        ["Revenue", "1,200", "1,100"],
        ["Cost of revenue", "(700)", "—"],
        ["Total", "500", "1,100"],
    ]
    assert table.html.startswith("<table><thead><tr><th>")


def test_an_empty_cell_stays_empty() -> None:
    table = build_table([*YEARS, *rows(("Revenue", "1,200", "1,100"), ("Interest", "", "40"), ("Total", "9", "8"))])
    assert table is not None
    assert grid(table.html)[2] == ["Interest", "", "40"]


def test_a_head_centred_over_columns_spans_them() -> None:
    table = build_table([line("Year Ended", 300, 84), *YEARS, *ACCOUNTS])
    assert table is not None
    assert grid(table.html)[0] == ["", "Year Ended", "<"]


def test_a_rule_says_which_columns_a_head_spans() -> None:
    heads = [line("Thousands", 290, 84), line("Change", 420, 84), right("%", 450, 100)]
    more = [right(value, 450, 116 + 14 * i) for i, value in enumerate(("9", "-3", "4"))]
    table = build_table([*heads, *YEARS, *ACCOUNTS, *more], rules=[(270.0, 96.0, 385.0, 96.5)])
    assert table is not None
    assert grid(table.html)[0] == ["", "Thousands", "<", "Change"]


def test_currency_and_percent_signs_go_to_their_numbers() -> None:
    signs = [line("$", 250, 116), line("$", 330, 116), line("%", 304, 144)]
    table = build_table([*YEARS, *ACCOUNTS, *signs])
    assert table is not None
    assert grid(table.html)[1] == ["Revenue", "$ 1,200", "$ 1,100"]
    assert grid(table.html)[3] == ["Total", "500%", "1,100"]


def test_a_label_over_two_lines_is_one_cell() -> None:
    wrapped = rows(("Reclassification of gains realized", "", ""), ("included in net income", "1", "2"), pitch=11)
    table = build_table([*YEARS, *wrapped, *rows(("Total", "3", "4"), top=150)])
    assert table is not None
    assert ["Reclassification of gains realized included in net income", "1", "2"] in grid(table.html)


def test_a_section_row_stays_a_row() -> None:
    table = build_table([*YEARS, *rows(("Operating expenses:", "", ""), ("Research", "1", "2"), ("Sales", "3", "4"))])
    assert table is not None
    assert grid(table.html)[1:3] == [["Operating expenses:", "", ""], ["Research", "1", "2"]]


def test_heads_set_at_an_angle_stand_over_their_columns() -> None:
    slanted = [Word("Procedure", (284.0, 70.0, 320.0, 110.0)), Word("Knowledge", (364.0, 70.0, 400.0, 110.0))]
    table = build_table(rows(("One", "0.87", "0.60"), ("Two", "0.90", "0.80")), slanted=slanted)
    assert table is not None
    assert grid(table.html)[0] == ["", "Procedure", "Knowledge"]


def test_markup_in_a_cell_is_escaped() -> None:
    table = build_table(rows(("a < b & c", "1", "2"), ("d", "3", "4")))
    assert table is not None
    assert "a &lt; b &amp; c" in table.html


def test_one_column_is_no_table() -> None:
    assert build_table(column(["one", "two", "three"], 60, 100)) is None


def inside(lines: list[TextLine], box: BBox) -> set[str]:
    return {p.text for p in lines if covered(p.bbox, box) > 0.5}


PROSE = column(["The table below says what the company earned in both of the years and"] * 3, 60, 30)


def test_a_table_is_found_between_paragraphs_with_its_heads() -> None:
    after = column(["Stock was not significant in either of the two years that are shown above"] * 3, 60, 180)
    boxes = find_tables([*PROSE, *YEARS, *ACCOUNTS, *after])
    assert [inside([*PROSE, *YEARS, *ACCOUNTS, *after], box) for box in boxes] == [
        {p.text for p in [*YEARS, *ACCOUNTS]}
    ]


def test_two_tables_with_heads_of_their_own_are_two() -> None:
    second = [right("2022", 300, 200), right("2021", 380, 200), *rows(("Rent", "5", "6"), ("Wages", "7", "8"), top=216)]
    assert len(find_tables([*YEARS, *ACCOUNTS, *second])) == 2


def test_two_columns_of_prose_are_no_table() -> None:
    left = column(["the quick brown fox jumps over the lazy dogs"] * 12, 60, 100)
    right_ = column(["the river runs along the valley to the south"] * 12, 320, 100)
    assert find_tables([*left, *right_]) == []


def test_a_formula_with_its_number_is_no_table() -> None:
    formulas = [line("E = m c", 100, 100), line("(1)", 400, 100), line("F = m a", 100, 140), line("(2)", 400, 140)]
    assert find_tables(formulas) == []


def test_names_side_by_side_are_no_table() -> None:
    names = [
        line(name, x, y) for y in (100, 114) for name, x in (("A. Field", 60), ("B. Rivers", 200), ("C. Hill", 340))
    ]
    assert find_tables(names) == []


def test_a_table_beside_prose_is_found_in_its_own_column() -> None:
    left = column(["the quick brown fox jumps over the lazy dogs"] * 12, 20, 84)
    cells = [line(label, 330, 100 + 14 * i) for i, label in enumerate(("Oak", "Elm", "Ash"))]
    cells += [right(value, 450, 100 + 14 * i) for i, value in enumerate(("1.5", "2.5", "3.5"))]
    boxes = find_tables([*left, *cells])
    assert [inside([*left, *cells], box) for box in boxes] == [{"Oak", "Elm", "Ash", "1.5", "2.5", "3.5"}]
