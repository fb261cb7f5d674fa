"""Lines of one column to paragraphs, titles and list items."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pipeline.page_model import BBox, TextLine
from pipeline.structure.geometry import body_size, same_row, union
from pipeline.structure.inline import join_text
from pipeline.structure.margins import split_margin_notes
from pipeline.structure.marks import Mark, bare_numbers, read_marks

NUMBERED_TITLE = re.compile(r"^(?:[0-9]{1,2}(?:\.[0-9]{1,2}){0,3}\.?|[IVX]{1,5}\.|[A-Z]\.)\s+[A-Z\u4e00-\u9fff]")
_CAPTION = re.compile(
    r"^(?:fig(?:ure|\.)?|table|tab\.|abb(?:ildung|\.)|tabelle|scheme|chart|图|表)\s*[0-9IVX]+(?:\.[0-9]+)?\s*[\.:\-–—|]?",
    re.IGNORECASE,
)
_LEADER = re.compile(r"(?:\.\s?){4,}\s*[0-9ivxlc]+$")
_SENTENCE_END = re.compile(r"[\.\?!:;。！？：；]['\"”’\)\]]*$")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines that belong together.

    Attributes:
        text: the lines joined, hyphenation undone.
        lines: from the top.
        font_size: points, of most of its characters.
        bold: all of it is bold; None where that is not known.
        marks: of a list item, in all ways of reading it; empty if it begins with a word.
    """

    text: str
    bbox: BBox
    lines: tuple[TextLine, ...]
    font_size: float
    bold: bool | None
    marks: tuple[Mark, ...] = ()

    @property
    def item(self) -> bool:
        """Whether it begins with a bullet or a number."""
        return bool(self.marks)

    @property
    def caption(self) -> bool:
        return bool(_CAPTION.match(self.text))


def join_rows(lines: Sequence[TextLine]) -> list[TextLine]:
    """Pieces of one row, which no gutter separates, become one line; `lines` come in reading order."""
    rows: list[list[TextLine]] = []
    for line in lines:
        if rows and any(_beside(other, line) for other in rows[-1][-2:]):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [_join(row) for row in rows]


def paragraphs(lines: Sequence[TextLine], body: float = 0.0, by_line: bool = False) -> list[Paragraph]:
    """Split the lines of one column, in reading order, into paragraphs.

    Args:
        lines: pieces of lines.
        body: the page's font size, points.
        by_line: keep each line by itself, as on a page written by hand, where nothing tells which belong together.
    """
    text, notes = split_margin_notes(lines)
    whole = join_rows(text)
    if not whole:
        return [_paragraph([note], ()) for note in notes]
    splitter = _Splitter(whole, body or body_size(whole))
    groups: list[list[TextLine]] = [[whole[0]]]
    for line in whole[1:]:
        if by_line or splitter.breaks(groups[-1], line):
            groups.append([line])
        else:
            groups[-1].append(line)
    found = [_paragraph(group, splitter.marks(group[0])) for group in groups]
    for note in notes:
        # Before the paragraph beside which it stands.
        middle = (note.bbox[1] + note.bbox[3]) / 2
        place = next((i for i, p in enumerate(found) if middle < p.bbox[3]), len(found))
        found.insert(place, _paragraph([note], ()))
    return found


def _beside(a: TextLine, b: TextLine) -> bool:
    return same_row(a.bbox, b.bbox) and b.bbox[0] >= a.bbox[0]


def _join(row: list[TextLine]) -> TextLine:
    if len(row) == 1:
        return row[0]
    row = sorted(row, key=lambda line: line.bbox[0])
    widest = max(row, key=lambda line: len(line.text))
    known = [line for line in row if line.bold is not None]
    return TextLine(
        text=" ".join(line.text for line in row),
        bbox=union(line.bbox for line in row),
        words=tuple(word for line in row for word in line.words),
        score=min(line.score for line in row),
        font_size=widest.font_size,
        bold=all(line.bold for line in known) if known else None,
    )


class _Splitter:
    """Where the lines of one column part."""

    def __init__(self, lines: Sequence[TextLine], typical: float) -> None:
        self._typical = typical
        self._column = union(line.bbox for line in lines)
        pitches = [
            b.bbox[3] - a.bbox[3]
            for a, b in itertools.pairwise(lines)
            if 0 < b.bbox[3] - a.bbox[3] < 2.2 * (b.bbox[3] - b.bbox[1])
        ]
        self._pitch = median(pitches) if pitches else 0.0
        numbered = bare_numbers(lines)
        self._marks = {
            id(line): (numbered[i],) if i in numbered else tuple(read_marks(line.text)) for i, line in enumerate(lines)
        }
        self._numbered = {id(lines[i]) for i in numbered}

    def marks(self, line: TextLine) -> tuple[Mark, ...]:
        """What makes the line the beginning of a list item."""
        return self._marks[id(line)]

    def breaks(self, group: Sequence[TextLine], line: TextLine) -> bool:
        """Whether `line` begins a new paragraph after the lines of `group`."""
        last, first, column = group[-1], group[0], self._column
        size = max(1.0, min(_size(last), _size(line)))
        if self._apart(last, line, size):
            return True
        if last.text.endswith("-") and last.text[-2:-1].isalpha() and line.text[:1].islower():
            # A word goes on.
            return False
        if _LEADER.search(last.text):
            # A line of a table of contents is an entry by itself.
            return True
        known = last.bold is not None and line.bold is not None
        exact = known and last.score == line.score == 1.0
        ratio = max(_size(last), _size(line)) / size
        if ratio > (1.12 if exact else 1.35) and not (not exact and ratio < 1.7 and self._reads_on(last, line)):
            return True
        if NUMBERED_TITLE.match(first.text) and first.bold and line.bold and not NUMBERED_TITLE.match(line.text):
            # A heading's second line hangs under its words.
            return False
        if known and last.bold != line.bold and (_short(last, column) or len(group) > 1 or last.bold):
            # A bold line above plain text is a heading, also where it is long.
            return bool(last.bold) or _short(last, column)
        if self.marks(line) and self._begins_item(first, last, line, size):
            return True
        if self.marks(first):
            hangs = self._hangs(group, line, size)
            if hangs is not None:
                return not hangs
        return self._parts(group, line, size)

    def _apart(self, last: TextLine, line: TextLine, size: float) -> bool:
        """Whether more white stands between two lines than within a paragraph."""
        height = max(1.0, min(last.bbox[3] - last.bbox[1], line.bbox[3] - line.bbox[1]))
        usual = max(self._pitch + 0.35 * size, 1.25 * height)
        if min(_size(last), _size(line)) > 1.15 * self._typical:
            # Lines of a large heading are as far apart as it is large, whatever the text's pitch is.
            usual = max(usual, 1.6 * height)
        if self._reads_on(last, line):
            # A formula in a line pushes its neighbours away.
            usual = max(usual, 1.75 * height)
        if line.bbox[1] > last.bbox[3] and line.bbox[3] - last.bbox[3] > usual:
            return True
        return line.bbox[3] - last.bbox[3] > 2.2 * height or line.bbox[3] < last.bbox[1]

    def _reads_on(self, last: TextLine, line: TextLine) -> bool:
        """Whether a sentence goes from a full line to the next."""
        return line.text[:1].islower() and not _short(last, self._column) and not _SENTENCE_END.search(last.text)

    def _begins_item(self, first: TextLine, last: TextLine, line: TextLine, size: float) -> bool:
        """Whether the mark that a line begins with is one of a list, and not a number at the line's beginning."""
        marks = self.marks(line)
        if id(line) in self._numbered or marks[0].unmistakable:
            return True
        if self.marks(first) and abs(line.bbox[0] - first.bbox[0]) < 0.5 * size:
            return True
        if _short(last, self._column) or last.text.rstrip()[-1:] in ":;：":
            return True
        opens = any(mark.opens for mark in marks)
        return opens and (line.bbox[0] > last.bbox[0] + 0.8 * size or bool(_SENTENCE_END.search(last.text)))

    def _hangs(self, group: Sequence[TextLine], line: TextLine, size: float) -> bool | None:
        """Whether a line goes on with an item, as its place below the item's text says; None if it says nothing."""
        first = group[0]
        indents = [word.bbox[0] for word in first.words[1:2]]
        if len(group) > 1 and group[1].bbox[0] > first.bbox[0] + 0.5 * size:
            indents = [group[1].bbox[0]]
            if line.bbox[0] < indents[0] - 0.6 * size:
                return False
        if any(abs(line.bbox[0] - indent) < 0.6 * size for indent in indents):
            return True
        return None

    def _parts(self, group: Sequence[TextLine], line: TextLine, size: float) -> bool:
        last, first, column = group[-1], group[0], self._column
        ended = _short(last, column)
        if ended and _SENTENCE_END.search(last.text):
            return True
        if self.marks(first) and len(group) == 1:
            # The text of an item hangs below its first word, or runs back to the margin.
            return line.bbox[0] < first.bbox[0] - 0.5 * size and (ended or bool(_SENTENCE_END.search(last.text)))
        indent = line.bbox[0] - last.bbox[0]
        centred = _centred(last, line, column, bool(self.marks(line)))
        if 0.8 * size < indent < 4 * size and len(line.text) > 1 and not centred:
            return True
        return ended and last.bbox[2] < column[2] - 0.35 * (column[2] - column[0]) and not centred


def _size(line: TextLine) -> float:
    return line.font_size or (line.bbox[3] - line.bbox[1])


def _short(line: TextLine, column: BBox) -> bool:
    """The line ends well before the column does."""
    return line.bbox[2] < column[2] - max(0.12 * (column[2] - column[0]), 1.5 * _size(line))


def _centred(a: TextLine, b: TextLine, column: BBox, item: bool) -> bool:
    """Two lines around one axis; a plain line that fills its column is not centred but full."""
    if item or (not a.bold and a.bbox[0] <= column[0] + 0.5 * _size(a) and not _short(a, column)):
        return False
    return abs((a.bbox[0] + a.bbox[2]) - (b.bbox[0] + b.bbox[2])) < 0.6 * _size(a)


def _paragraph(lines: list[TextLine], marks: tuple[Mark, ...]) -> Paragraph:
    weights: dict[float, int] = {}
    for line in lines:
        weights[_size(line)] = weights.get(_size(line), 0) + len(line.text)
    known = [line.bold for line in lines if line.bold is not None]
    return Paragraph(
        text=join_text([line.text for line in lines]),
        bbox=union(line.bbox for line in lines),
        lines=tuple(lines),
        font_size=max(weights, key=lambda size: weights[size]),
        bold=all(known) if known else None,
        marks=marks,
    )
