"""Characters, places and spaces from frame probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.models.ctc import Reading, decode

CHARACTERS = ["blank", "a", "b", "c", " "]


def read(*steps: dict[str, float], alternatives: bool = False) -> Reading:
    """Decode steps that name the probabilities of some characters; the blank ("") has the rest."""
    frames = np.zeros((len(steps), len(CHARACTERS)), dtype=np.float32)
    for frame, step in zip(frames, steps, strict=True):
        for character, probability in step.items():
            frame[CHARACTERS.index(character)] = probability
        frame[0] = 1.0 - sum(step.values())
    return decode(frames, CHARACTERS, alternatives=alternatives)


def test_a_letter_held_over_steps_is_one_letter_and_a_blank_parts_two() -> None:
    assert read({"a": 0.9}, {"a": 0.9}, {}, {"a": 0.9}, {"b": 0.9}).text == "aab"


def test_a_space_too_weak_to_win_still_parts_two_words() -> None:
    assert read({"a": 0.9}, {" ": 0.2}, {"b": 0.9}).text == "a b"
    assert read({"a": 0.9}, {" ": 0.05}, {"b": 0.9}).text == "ab"


def test_spaces_are_single_and_never_at_the_ends() -> None:
    assert read({" ": 0.9}, {"a": 0.9}, {" ": 0.9}, {}, {" ": 0.9}, {"b": 0.9}, {" ": 0.9}).text == "a b"


def test_every_character_has_a_place_in_order_and_within_the_line() -> None:
    reading = read({"a": 0.9}, {}, {"b": 0.9}, {" ": 0.9}, {"c": 0.9})
    assert len(reading.centres) == 3
    assert list(reading.centres) == sorted(reading.centres)
    assert reading.centres[0] == pytest.approx(0.1)
    assert reading.centres[-1] == pytest.approx(0.9)


def test_the_score_is_the_mean_probability_of_the_characters() -> None:
    assert read({"a": 1.0}, {}, {"b": 0.6}).score == pytest.approx(0.8)


def test_alternatives_come_likeliest_first_with_the_character_itself_among_them() -> None:
    reading = read({"a": 0.6, "b": 0.3, "c": 0.001}, alternatives=True)
    assert [character for character, _ in reading.alternatives[0]] == ["a", "b"]


def test_nothing_but_blanks_is_empty_text() -> None:
    assert read({}, {}) == Reading("", 0.0, ())
