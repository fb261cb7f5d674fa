"""Program code keeps its lines and its indentation."""

from __future__ import annotations

from pipeline.page_model import TextLine
from pipeline.structure.code import code_text, split_code
from pipeline.structure.inline import StyledWord

PITCH = 6.0


def typed(text: str, row: int, *, fixed: bool = True) -> TextLine:
    """A line as an editor shows it, its first character in the first column that is not blank."""
    words = []
    column = 0
    for part in text.split(" "):
        if part:
            x = 72 + PITCH * column
            words.append(StyledWord(part, (x, 100 + 12 * row, x + PITCH * len(part), 110 + 12 * row), fixed=fixed))
        column += len(part) + 1
    box = (words[0].bbox[0], words[0].bbox[1], words[-1].bbox[2], words[0].bbox[3])
    return TextLine(" ".join(w.text for w in words), box, tuple(words), font_size=10)


SOURCE = ["function add(a, b) {", "    return a + b;", "}", "console.log(add(3, 5));"]


def test_indentation_is_kept() -> None:
    lines = [typed(text, row) for row, text in enumerate(SOURCE)]
    assert code_text(lines) == "\n".join(SOURCE)


def test_code_is_told_from_the_text_around_it() -> None:
    before = typed("Listing 1 shows how to add two numbers", 0, fixed=False)
    code = [typed(text, row + 1) for row, text in enumerate(SOURCE)]
    after = typed("It is called once", 9, fixed=False)
    assert split_code([before, *code, after]) == [(False, [before]), (True, code), (False, [after])]


def test_an_address_in_typewriter_letters_is_text() -> None:
    lines = [typed("https://example.org/rivers/and/", 0), typed("valleys.html", 1)]
    assert split_code(lines) == [(False, lines)]
