"""A page's own text: pdfium's characters put together to words and lines.

A line here ends where a column may end: at a gap wider than a space, so that no line ever crosses a gutter.
`pipeline.structure` joins the pieces of one row again where no gutter turns out to lie between them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import pypdfium2

from pipeline.characters import SPACE, Char, invisible_share, is_undecodable, read_chars
from pipeline.links import Link, read_links
from pipeline.page_model import BBox, TextLine, Word
from pipeline.structure.geometry import same_row, union
from pipeline.structure.inline import StyledWord

WORD_GAP = 0.22
"""Gap between two characters, in font sizes, from which they belong to different words."""

LINE_GAP = 1.15
"""Gap between two words, in font sizes, from which a new line piece starts."""

REORDERED_GAP = 0.6
"""The same for words that do not follow each other in the file."""

_ROW = 8.0
"""Points; height of the strips in which neighbours are looked for, so that a crowded page costs no more."""

_DOUBLE = {"‘‘": "“", "’’": "”", "``": "“"}
"""A double quotation mark typed as two single ones, as fonts without the double one have it."""
_DOUBLED = re.compile("|".join(_DOUBLE))


@dataclass(frozen=True, slots=True)
class TextLayer:
    """What a page's text layer says.

    Attributes:
        lines: horizontal text, in the file's own order.
        slanted: words that do not run horizontally (a margin note, rotated column heads).
        chars: printing characters on the page.
        undecodable: share (0..1) of them without a meaning in Unicode.
        invisible: share (0..1) of them that is drawn invisibly.
    """

    lines: tuple[TextLine, ...]
    slanted: tuple[Word, ...]
    chars: int
    undecodable: float
    invisible: float


def read_text_layer(page: pypdfium2.PdfPage) -> TextLayer:
    """Read the text layer of `page`; boxes in points of the page as displayed."""
    text_page = page.get_textpage()
    try:
        chars = list(read_chars(page, text_page))
        invisible = invisible_share(text_page)
    finally:
        text_page.close()
    printing = [c for c in chars if c is not None and c is not SPACE]
    upright = _words([c if c is None or c is SPACE or c.style.upright else None for c in chars])
    slanted = _words([c if c is not None and not c.style.upright else None for c in chars])
    count = len(printing)
    return TextLayer(
        lines=tuple(_linked(_lines(upright), read_links(page))),
        slanted=tuple(Word(w.text, w.bbox) for w in slanted),
        chars=count,
        undecodable=sum(is_undecodable(c.text) for c in printing) / count if count else 0.0,
        invisible=invisible,
    )


def _linked(lines: list[TextLine], links: Sequence[Link]) -> list[TextLine]:
    """The lines with the addresses of those words that the page's links lie on."""
    for link in links:
        x0, y0, x1, y1 = link.bbox
        for number, line in enumerate(lines):
            if line.bbox[1] >= y1 or line.bbox[3] <= y0 or line.bbox[0] >= x1 or line.bbox[2] <= x0:
                continue
            words = tuple(
                replace(word, url=link.url)
                if isinstance(word, StyledWord) and _centre_in(word.bbox, link.bbox)
                else word
                for word in line.words
            )
            lines[number] = replace(line, words=words)
    return lines


def _centre_in(inner: BBox, box: BBox) -> bool:
    x, y = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


@dataclass(slots=True)
class _Word:
    text: str
    bbox: BBox
    size: float
    bold: bool
    italic: bool
    fixed: bool
    baseline: float
    glued: bool
    spaced: bool


def _words(chars: list[Char | None]) -> list[_Word]:
    words: list[_Word] = []
    current: list[Char] = []
    glued = spaced = False

    def finish(touching: bool) -> None:
        nonlocal glued, spaced
        if current:
            text = _DOUBLED.sub(lambda m: _DOUBLE[m.group()], "".join(c.text for c in current))
            box = union(c.bbox for c in current)
            size = max(c.style.size for c in current)
            style = current[0].style
            words.append(_Word(text, box, size, style.bold, style.italic, style.fixed, style.baseline, glued, spaced))
            current.clear()
            spaced = False
        glued = touching

    for char in chars:
        if char is None or char is SPACE:
            finish(False)
            spaced = spaced or char is SPACE
            continue
        if current and not _continues(current[-1], char):
            finish(False)
        elif current and _changes_style(current[-1], char):
            finish(True)
        current.append(char)
    finish(False)
    return words


def _changes_style(last: Char, char: Char) -> bool:
    """A superscript, or a word half of which is bold, is two words that touch."""
    a, b = last.style, char.style
    if a is b:
        return False
    if (a.bold, a.italic) != (b.bold, b.italic) and char.text.isalnum():
        return True
    return max(a.size, b.size) > 1.15 * min(a.size, b.size)


def _continues(last: Char, char: Char) -> bool:
    a, b = last.style, char.style
    if not b.upright:
        reach = 1.2 * max(a.size, b.size)
        return (
            abs(a.angle - b.angle) < 0.05
            and abs(char.bbox[0] - last.bbox[0]) < reach + (last.bbox[2] - last.bbox[0])
            and abs(char.bbox[1] - last.bbox[1]) < reach + (last.bbox[3] - last.bbox[1])
        )
    gap = char.bbox[0] - last.bbox[2]
    size = min(a.size, b.size)
    if gap > WORD_GAP * size or gap < -2.0 * max(a.size, b.size):
        return False
    if a is b:
        return char.bbox[3] > last.bbox[1] and last.bbox[3] > char.bbox[1]
    return same_row(last.bbox, char.bbox) and max(a.size, b.size) < 1.8 * size


def _lines(words: list[_Word]) -> list[TextLine]:
    pieces: list[list[_Word]] = []
    for word in words:
        if pieces and _is_script_in(pieces[-1], word):
            pieces[-1].insert(len(pieces[-1]) - 1, word)
        elif pieces and _follows(pieces[-1][-1], word, LINE_GAP):
            pieces[-1].append(word)
        else:
            pieces.append([word])
    return _join_drop_caps([_line(piece) for piece in _insert_scripts(_join_reordered(pieces))])


def _is_script_in(piece: list[_Word], word: _Word) -> bool:
    """A superscript written after the word that follows it on the page."""
    last = piece[-1]
    return (
        len(piece) > 1
        and word.size < 0.85 * last.size
        and same_row(last.bbox, word.bbox)
        and piece[-2].bbox[2] - 0.3 * last.size <= word.bbox[0]
        and word.bbox[2] <= last.bbox[0] + 0.3 * last.size
    )


def _follows(last: _Word, word: _Word, limit: float) -> bool:
    gap = word.bbox[0] - last.bbox[2]
    size = max(last.size, word.size)
    if min(last.size, word.size) > 0.85 * size and abs(last.baseline - word.baseline) > 0.35 * size:
        # The two halves of a fraction overlap as a line and its superscript do, but neither is small.
        return False
    return (
        -0.7 * size <= gap <= limit * size and same_row(last.bbox, word.bbox) and size < 1.9 * min(last.size, word.size)
    )


def _join_reordered(pieces: list[list[_Word]]) -> list[list[_Word]]:
    """Join pieces that touch on one row though the file has them apart (superscripts, restyled words)."""
    by_row = sorted(range(len(pieces)), key=lambda i: pieces[i][0].bbox[0])
    taken: dict[int, int] = {}
    ends: dict[int, list[int]] = {}
    for i in by_row:
        first = pieces[i][0]
        row = round(first.bbox[3] / 8)
        candidates = [j for key in (row - 1, row, row + 1) for j in ends.get(key, ())]
        best = None
        for j in candidates:
            last = pieces[j][-1]
            if _follows(last, first, REORDERED_GAP) and (best is None or last.bbox[2] > pieces[best][-1].bbox[2]):
                best = j
        if best is not None:
            last = pieces[best][-1]
            ends[round(last.bbox[3] / 8)].remove(best)
            pieces[best].extend(pieces[i])
            taken[i] = best
            target = best
        else:
            target = i
        ends.setdefault(round(pieces[target][-1].bbox[3] / 8), []).append(target)
    return [piece for i, piece in enumerate(pieces) if i not in taken]


def _insert_scripts(pieces: list[list[_Word]]) -> list[list[_Word]]:
    """Put superscripts and subscripts that the file keeps apart into the line in which they stand."""
    hosts = [(union(w.bbox for w in piece), max(w.size for w in piece)) for piece in pieces]
    rows: dict[int, list[int]] = {}
    for j, (box, _) in enumerate(hosts):
        if len(pieces[j]) > 1:
            for row in range(int(box[1] // _ROW), int(box[3] // _ROW) + 1):
                rows.setdefault(row, []).append(j)
    gone: set[int] = set()
    for i, piece in enumerate(pieces):
        box, size = hosts[i]
        if len(piece) > 3:
            continue
        for j in rows.get(int((box[1] + box[3]) / 2 // _ROW), ()):
            host, host_size = hosts[j]
            inside = host[0] < box[0] and box[2] < host[2] + 0.5 * host_size
            if j != i and j not in gone and size < 0.85 * host_size and inside and same_row(box, host):
                pieces[j].extend(piece)
                pieces[j].sort(key=lambda word: word.bbox[0])
                gone.add(i)
                break
    return [piece for i, piece in enumerate(pieces) if i not in gone]


def _line(words: list[_Word]) -> TextLine:
    sizes = Counter[float]()
    for word in words:
        sizes[round(word.size, 1)] += len(word.text)
    size = sizes.most_common(1)[0][0]
    baselines = sorted(w.baseline for w in words if round(w.size, 1) == size)
    baseline = baselines[len(baselines) // 2]
    styled: list[StyledWord] = []
    for last, word in zip([None, *words], words, strict=False):
        # Pieces of one word in two styles touch; a space was never there.
        style = _style(word, size, baseline)
        reach = 0.12 * size if style in (("superscript",), ("subscript",)) else 0.08 * word.size
        # Slanted letters overhang, so that words may touch which the file has a space between.
        apart = word.spaced or word.bbox[0] - last.bbox[2] >= reach if last is not None else False
        glued = last is not None and (word.glued or not apart)
        styled.append(StyledWord(word.text, word.bbox, style=style, glued=glued, fixed=word.fixed))
    _smooth(styled)
    return TextLine(
        text="".join(w.text if w.glued or i == 0 else " " + w.text for i, w in enumerate(styled)),
        bbox=union(w.bbox for w in words),
        words=tuple(styled),
        font_size=size,
        # A bold lead-in does not make a line bold.
        bold=sum(len(w.text) for w in words if w.bold) > 0.9 * sum(len(w.text) for w in words),
    )


def _smooth(words: list[StyledWord]) -> None:
    """A ligature may stand in a font of its own: a letter or two take the style of the word around them."""
    for i in range(1, len(words) - 1):
        before, word, after = words[i - 1], words[i], words[i + 1]
        plain = not {"superscript", "subscript"} & {*before.style, *word.style}
        if word.glued and after.glued and before.style == after.style and len(word.text) <= 2 and plain:
            words[i] = StyledWord(word.text, word.bbox, style=before.style, glued=True)


def _style(word: _Word, size: float, baseline: float) -> tuple[str, ...]:
    """MinerU's names for how a word is set."""
    if word.size < 0.85 * size:
        if word.baseline < baseline - 0.12 * size:
            return ("superscript",)
        if word.baseline > baseline + 0.05 * size:
            return ("subscript",)
    return (*(("bold",) if word.bold else ()), *(("italic",) if word.italic else ()))


def _join_drop_caps(lines: list[TextLine]) -> list[TextLine]:
    """Put a drop cap in front of the line that it begins."""
    usual = median(line.font_size for line in lines) if lines else 0.0
    caps = [line for line in lines if len(line.text) == 1 and line.text.isalpha() and line.font_size > 1.5 * usual]
    joined: dict[int, TextLine] = {}
    gone: set[int] = set()
    for cap in caps:
        height = cap.bbox[3] - cap.bbox[1]
        beside = [
            line
            for line in lines
            if line.text[:1].islower()
            and cap.font_size >= 1.9 * line.font_size
            and -2 <= line.bbox[0] - cap.bbox[2] + 0.2 * cap.font_size <= 0.5 * cap.font_size
            and cap.bbox[1] - 0.2 * height <= line.bbox[1] <= cap.bbox[1] + 0.6 * height
        ]
        if beside:
            first = min(beside, key=lambda line: line.bbox[1])
            head = StyledWord(cap.text + first.words[0].text, first.words[0].bbox)
            joined[id(first)] = replace(first, text=cap.text + first.text, words=(head, *first.words[1:]))
            gone.add(id(cap))
    return [joined.get(id(line), line) for line in lines if id(line) not in gone]
