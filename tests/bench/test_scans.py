from __future__ import annotations

import pytest

from bench.scans import SENTENCE, character_error

pytest.importorskip("rapidfuzz")


def test_the_sentence_over_several_lines_has_no_error() -> None:
    assert character_error(SENTENCE.replace(" to ", "\n\nto "), SENTENCE) == 0.0


def test_each_wrong_missing_or_extra_character_counts_once() -> None:
    one = 1 / len(SENTENCE)
    for text in (SENTENCE.replace("D", "O", 1), SENTENCE[:-1], SENTENCE + "s"):
        assert character_error(text, SENTENCE) == pytest.approx(one)


def test_no_text_is_all_error() -> None:
    assert character_error("", SENTENCE) == 1.0
