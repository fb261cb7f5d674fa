"""Lines and words from readings."""

from __future__ import annotations

import numpy as np

from pipeline.models.ctc import Reading
from pipeline.ocr.lines import Piece, text_lines


def piece(
    text: str, x: float = 100, y: float = 100, gaps: dict[int, float] | None = None, score: float = 0.99
) -> Piece:
    """A drawn line: every character 10 pixels wide, wider spaces before the named characters."""
    places, at = [], 10.0
    for n, character in enumerate(text):
        at += (gaps or {}).get(n, 0.0)
        if character != " ":
            places.append(at)
        at += 10.0
    width = at + 10
    crop = np.full((30, int(width), 3), 255, dtype=np.uint8)
    for place in places:
        crop[10:20, int(place) : int(place) + 6] = 0
    quad = np.array([[x, y], [x + width, y], [x + width, y + 30], [x, y + 30]], dtype=np.float32)
    return Piece(quad, crop, Reading(text, score, tuple((p + 3) / width for p in places)))


def test_words_have_boxes_from_left_to_right_within_the_line() -> None:
    (line,) = text_lines([piece("red green blue")], scale=2.0)
    assert [word.text for word in line.words] == ["red", "green", "blue"]
    edges = [edge for word in line.words for edge in (word.bbox[0], word.bbox[2])]
    assert edges == sorted(edges)
    assert line.bbox[0] >= 50
    assert line.bbox[2] <= (100 + 150) / 2 + 10


def test_a_gap_wider_than_a_word_space_parts_columns() -> None:
    lines = text_lines([piece("left side right side", gaps={10: 90.0})], scale=1.0)
    assert [line.text for line in lines] == ["left side", "right side"]
    assert lines[1].bbox[0] - lines[0].bbox[2] > 60


def test_chinese_gets_no_spaces_between_characters() -> None:
    (line,) = text_lines([piece("本公司成立于北京")], scale=1.0)
    assert line.text == "本公司成立于北京"
    assert [word.text for word in line.words] == ["本公司成立于北京"]


def test_illegible_pieces_are_left_out() -> None:
    lines = text_lines([piece("clear words", y=100), piece("x#~", y=200, score=0.2), piece("", y=300)], scale=1.0)
    assert [line.text for line in lines] == ["clear words"]


def test_lines_of_one_paragraph_have_one_font_size() -> None:
    texts = ["a line with letters of all heights", "some cross aces", "and yet another line of text here"]
    sizes = {line.font_size for line in text_lines([piece(t, y=100 + 40 * n) for n, t in enumerate(texts)], 1.0)}
    assert len(sizes) == 1
    assert 15 < sizes.pop() < 27


def test_an_upright_stamp_is_one_line_with_one_box() -> None:
    tall = piece("arXiv stamp")
    tall = tall.moved(np.array([[10, 10], [40, 10], [40, 400], [10, 400]], dtype=np.float32))
    (line,) = text_lines([tall], scale=1.0)
    assert line.bbox == (10.0, 10.0, 40.0, 400.0)
