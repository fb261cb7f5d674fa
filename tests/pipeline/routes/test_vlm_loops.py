"""What counts as a text that repeats itself, and what good documents repeat."""

from __future__ import annotations

import random
import time

import pytest

from pipeline.routes.vlm.loops import has_looped

PROSE = " ".join(random.Random(7).choices([f"word{n}" for n in range(200)], k=400))


@pytest.mark.parametrize(
    "unit", ["la ", "and so on ", "河水", "x^{2} + ", "the same sentence, once more and again. " * 4]
)
def test_a_stretch_over_and_over_is_a_loop(unit: str) -> None:
    assert has_looped(PROSE + unit * (2 + 1200 // len(unit)))
    # Wherever in it the text happens to end.
    assert has_looped(PROSE + (unit * (2 + 1200 // len(unit)))[: -len(unit) // 2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "ha ha ha",
        PROSE,
        PROSE * 2,
        "Contents " + "." * 300 + " 12",
        "Name " + "_" * 200,
        "<fcel>Total<fcel>0<fcel>0<fcel>0<nl>" + "<fcel>Row<fcel>0<fcel>0<fcel>0<nl>" * 8,
        "<ecel><ecel><ecel><nl>" * 20,
        "0 0 0 0 0 0 0 0",
        "& 0 " * 12,
    ],
    ids=range(11),
)
def test_what_documents_repeat_is_none(text: str) -> None:
    assert not has_looped(text)


def test_a_table_that_does_not_end_is_one() -> None:
    assert has_looped("<fcel>a<nl>" + "<ecel><ecel><nl>" * 300)


@pytest.mark.parametrize("text", ["a" * 5_000_000, PROSE * 1000, "ab" * 2_000_000])
def test_looking_costs_the_same_however_long_the_text_is(text: str) -> None:
    started = time.process_time()
    for _ in range(20):
        has_looped(text)
    assert time.process_time() - started < 5, "bounded, not fast: far above what it takes"
