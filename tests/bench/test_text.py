from __future__ import annotations

import pytest

from bench.text import similarity, word_similarity

pytest.importorskip("rapidfuzz")

TRUTH = "The mill grinds pages.\nEvery page is small.\nNothing is lost on the way."


def test_the_same_text_in_other_clothes_scores_one() -> None:
    markdown = "# The mill grinds pages.\n\n**Every** page is small.\n\nNothing is lost on the way."
    assert similarity(markdown, TRUTH) == 1.0
    assert word_similarity(markdown, TRUTH) == 1.0


def test_no_text_scores_zero() -> None:
    assert similarity("", TRUTH) == 0.0


def test_text_in_another_order_costs_as_much_as_text_that_is_missing() -> None:
    first, second, third = TRUTH.split("\n")
    swapped = f"{third}\n\n{second}\n\n{first}"
    missing = f"{second}\n\n{third}"
    assert similarity(swapped, TRUTH) <= similarity(missing, TRUTH) < 1.0


def test_text_twice_costs() -> None:
    assert similarity(f"{TRUTH}\n\n{TRUTH}", TRUTH) == pytest.approx(2 / 3, abs=0.01)
