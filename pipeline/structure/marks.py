"""What list items begin with: bullets, numbers, letters and roman numerals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.page_model import TextLine

_BULLETS = "•●○▪■□◦‣⁃∙➢➤►▸❖✓✔◆◇⬥\uf0b7\uf0a7\uf0d8\uf076\uf0fc"
"""Signs that are nothing but bullets, those of symbol fonts among them."""

_BULLET = re.compile(rf"^(?P<mark>[{_BULLETS}])\s*\S|^(?P<dash>[·–—\-\*])\s+\S")
_NUMBER = re.compile(
    r"^(?P<open>[\(\[（]?)(?P<value>[0-9]{1,3}|[a-zA-Z]|[ivxIVX]{2,5})(?P<close>[\.\)\]）、．])(?P<space>\s*)\S"
)
_BARE = re.compile(r"^(?P<value>[0-9]{1,3})\s+\S")
_ROMAN = {"i": 1, "v": 5, "x": 10}


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of an item, in one way of reading it ("i." may be a letter or a numeral).

    Attributes:
        text: as printed.
        style: items of one level share it.
        value: its number; 0 for bullets.
        bullet: it only points.
        unmistakable: nothing but a list begins so.
    """

    text: str
    style: str
    value: int = 0
    bullet: bool = False
    unmistakable: bool = False

    @property
    def opens(self) -> bool:
        """Whether a list may begin with it."""
        return self.bullet or self.value <= 1

    def follows(self, last: Mark) -> bool:
        """Whether it is the next one of the same list."""
        return self.style == last.style and (self.bullet or self.value == last.value + 1)


def read_marks(text: str) -> list[Mark]:
    """The mark at the beginning of a line in all ways of reading it; [] if it begins with a word."""
    bullet = _BULLET.match(text)
    if bullet:
        sure = bullet.group("mark")
        return [Mark(text[0], f"bullet {text[0]}", bullet=True, unmistakable=bool(sure))]
    found = _NUMBER.match(text)
    if not found:
        return []
    start, value, close = found.group("open", "value", "close")
    if start and close not in ")]）":
        return []
    digits = value.isdigit()
    # "3.5" and "e.g." are no marks; a bracket, or a full-width sign, needs no space.
    if not found.group("space") and not (start or close in "）、．"):
        return []
    printed = start + value + close
    shape = f"{start} {close}"
    if digits:
        return [Mark(printed, f"number {shape}", int(value))]
    case = "upper" if value.isupper() else "lower"
    marks = []
    if len(value) == 1:
        marks.append(Mark(printed, f"{case} letter {shape}", ord(value.lower()) - ord("a") + 1))
    number = _roman(value.lower())
    if number:
        marks.append(Mark(printed, f"{case} roman {shape}", number))
    return marks


def bare_numbers(lines: Sequence[TextLine]) -> dict[int, Mark]:
    """Items whose number has nothing but a space after it: they count up, and their further lines hang.

    Args:
        lines: of one column, whole, from the top.

    Returns:
        Marks by the place of their line in `lines`; runs of fewer than three are left out.
    """
    starts: dict[int, Mark] = {}
    run: list[tuple[int, Mark]] = []
    edge = 0.0

    def finish() -> None:
        if len(run) >= 3:
            starts.update(run)
        run.clear()

    for index, line in enumerate(lines):
        found = _BARE.match(line.text)
        size = line.font_size or line.bbox[3] - line.bbox[1]
        if found:
            value = int(found.group("value"))
            # Numbers may be flush right: what must agree is where their text begins.
            hang = line.words[1].bbox[0] if len(line.words) > 1 else line.bbox[0]
            if run and value == run[-1][1].value + 1 and abs(hang - edge) < 0.6 * size:
                run.append((index, Mark(found.group("value"), "bare number", value)))
                continue
            if not run or line.bbox[0] < edge - 0.5 * size:
                finish()
                run.append((index, Mark(found.group("value"), "bare number", value)))
                edge = hang
                continue
        if run and line.bbox[0] < edge - 0.5 * size:
            finish()
    finish()
    return starts


def _roman(text: str) -> int:
    """The number that a numeral of i, v and x stands for; 0 if it is none."""
    if not text or any(c not in _ROMAN for c in text):
        return 0
    total = 0
    for character, after in zip(text, [*text[1:], ""], strict=True):
        value = _ROMAN[character]
        total += -value if after and _ROMAN[after] > value else value
    return total
