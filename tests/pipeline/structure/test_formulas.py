"""Stacked formulas are shown; formulas on one line are read."""

from __future__ import annotations

from pipeline.structure.formulas import find_formulas
from tests.pipeline.structure.build import line


def test_a_fraction_is_a_formula() -> None:
    pieces = [line("s(t) =", 100, 108), line("t", 148, 101), line("1 + t", 140, 115)]
    found = find_formulas(pieces, [(138.0, 112.5, 166.0, 113.0)], [])
    assert [r.bbox for r in found] == [(100.0, 101.0, 160.0, 125.0)]


def test_a_formula_on_one_line_is_not() -> None:
    assert find_formulas([line("s(t) = 2 t + 8", 100, 100)], [], []) == []


def test_an_underlined_word_over_a_line_is_not() -> None:
    pieces = [line("Results", 100, 100), line("The river turns to the south", 100, 116)]
    assert find_formulas(pieces, [(100.0, 111.0, 135.0, 111.5)], []) == []


def test_nothing_is_looked_for_in_a_table() -> None:
    pieces = [line("a = b", 140, 101), line("c", 140, 115)]
    rule = (138.0, 112.5, 166.0, 113.0)
    assert find_formulas(pieces, [rule], [])
    assert find_formulas(pieces, [rule], [(90.0, 90.0, 300.0, 200.0)]) == []
