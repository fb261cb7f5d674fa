"""What the dictionary may change in a reading, and what not."""

from __future__ import annotations

from pipeline.models.ctc import Reading
from pipeline.ocr.lexicon import is_suspicious, settle


def reading(text: str, others: dict[int, list[tuple[str, float]]] | None = None, gap: int = -1) -> Reading:
    """A reading; `others` are alternatives by character (spaces not counted), `gap` one with a faint space."""
    letters = text.replace(" ", "")
    alternatives = tuple(((c, 0.6), *(others or {}).get(n, ())) for n, c in enumerate(letters))
    spaces = tuple(0.05 if n == gap else 0.0 for n in range(len(letters)))
    return Reading(text, 0.8, (0.5,) * len(letters), spaces, alternatives)


def test_an_unknown_word_becomes_the_known_one_that_was_held_possible() -> None:
    assert settle(reading("the Launday room", {8: [("r", 0.1)]})).text == "the Laundry room"


def test_a_word_is_never_replaced_by_one_that_was_not_held_possible() -> None:
    assert settle(reading("the Launday room")).text == "the Launday room"


def test_known_words_and_compounds_stay() -> None:
    assert settle(reading("black cat", {1: [("i", 0.3)]})).text == "black cat"
    assert settle(reading("CodeText", {4: [("N", 0.3)]})).text == "CodeText"


def test_two_letters_are_replaced_in_long_words_only() -> None:
    both = {1: [("o", 0.3)], 2: [("m", 0.3)]}
    assert settle(reading("cenpany", {1: [("o", 0.3)], 2: [("m", 0.3)]})).text == "company"
    assert settle(reading("zxre", both)).text == "zxre"


def test_a_digit_within_a_long_word_becomes_the_letter_it_looks_like() -> None:
    assert is_suspicious("ARCH + TRAININ6")
    assert settle(reading("ARCH + TRAININ6")).text == "ARCH + TRAINING"


def test_part_numbers_stay() -> None:
    for text in ("PP-OCRv6", "CO2", "A4", "2024", "B12"):
        assert not is_suspicious(text)
        assert settle(reading(text)).text == text


def test_words_run_together_are_parted_where_a_space_was_faint() -> None:
    assert settle(reading("POWER OFSTORYTELLING", gap=7)).text == "POWER OF STORYTELLING"
    assert settle(reading("POWER OFSTORYTELLING")).text == "POWER OFSTORYTELLING"


def test_other_scripts_stay() -> None:
    assert settle(reading("本公司成立于北京", {2: [("a", 0.4)]})).text == "本公司成立于北京"
