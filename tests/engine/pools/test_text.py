"""Text of an answer as it comes: whole characters, stop texts, loops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.pools.answer_text import AnswerText
from engine.pools.detokenise import Detokeniser
from engine.pools.loops import LONGEST_PERIOD, LOOP_TOKENS, LoopDetector
from engine.pools.messages import FinishReason, Sampling


def as_bytes(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", "replace")


def answer(most: int = 10_000, **sampling: object) -> AnswerText:
    settings = {"ignore_eos": False, **sampling}
    return AnswerText(as_bytes, Sampling.model_validate(settings), most, (0,))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_a_character_of_several_tokens_comes_whole_and_once(text: str) -> None:
    detokeniser = Detokeniser(as_bytes)
    pieces = [detokeniser.push(byte) for byte in text.encode()]
    assert "".join(pieces) + detokeniser.flush() == text
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces) or "\N{REPLACEMENT CHARACTER}" in text


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_nothing_waits_for_ever_for_a_character_that_never_ends(content: bytes) -> None:
    detokeniser = Detokeniser(as_bytes)
    said = "".join(detokeniser.push(byte) for byte in content)
    assert len(content) - len(said.encode()) <= len(content)
    rest = detokeniser.flush()
    assert not detokeniser.flush()
    assert content.isascii() is False or said + rest == content.decode()


def test_a_stop_text_over_several_tokens_is_never_said() -> None:
    text = answer(stop=("END",))
    pieces = [text.push([byte]) for byte in b"so it goes. EEND and on"]
    ended = next(at for at, piece in enumerate(pieces) if piece.finish_reason)
    assert "".join(piece.text for piece in pieces[: ended + 1]) == "so it goes. E"
    assert pieces[ended].finish_reason is FinishReason.STOP


def test_text_that_only_looked_like_a_stop_text_is_said_in_the_end() -> None:
    text = answer(most=5, stop=("END",))
    pieces = [text.push([byte]) for byte in b"the E"]
    assert "".join(piece.text for piece in pieces) == "the E"
    assert pieces[-1].finish_reason is FinishReason.LENGTH


def test_the_token_of_the_end_is_not_part_of_the_answer_unless_it_is_to_be_ignored() -> None:
    piece = answer().push([65, 0, 66])
    assert (piece.token_ids, piece.text, piece.finish_reason) == ((65,), "A", FinishReason.STOP)
    piece = answer(most=3, ignore_eos=True).push([65, 0, 66])
    assert (piece.token_ids, piece.finish_reason) == ((65, 0, 66), FinishReason.LENGTH)


@pytest.mark.parametrize("period", [1, 3, LONGEST_PERIOD])
def test_a_loop_is_stopped_and_what_is_shorter_is_not(period: int) -> None:
    text = answer()
    # Something else first, so that the loop does not begin at the beginning.
    text.push(list(range(200, 210)))
    tokens = [65 + at % period for at in range(LOOP_TOKENS)]
    assert text.push(tokens[:-1]).finish_reason is None
    assert text.push(tokens[-1:]).finish_reason is FinishReason.REPETITION


def test_a_loop_goes_on_where_nobody_wants_it_stopped() -> None:
    assert answer(repetition_stop=False).push([65] * 1000).finish_reason is None


def test_a_period_that_is_too_long_is_no_loop() -> None:
    detector = LoopDetector()
    assert not any(detector.push(at % (LONGEST_PERIOD + 1)) for at in range(2000))
