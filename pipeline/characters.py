"""The characters of a page as pdfium has them: what, where and how each one is set."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium_c

from pipeline.page_model import BBox

MAX_CHARS = 200_000
"""Characters read of one page; what lies beyond is not text that anyone reads."""

_SPACES = frozenset(" \t\r\n\u00a0\u2002\u2003\u2009\u3000\0")
_HYPHENS = {"\x02": "-", "\ufffe": "-", "\u00ad": "-"}
_ITALIC_NAME = re.compile(r"ital|oblique|slanted", re.IGNORECASE)
_FIXED_NAME = re.compile(
    r"mono|courier|consol|typewriter|menlo|nimbusmon|^(?:[A-Z]{6}\+)?(?:CM|SF|EC)TT", re.IGNORECASE
)
_BOLD_NAME = re.compile(
    r"bold|black|heavy|demi|[-,](?:medi(?:ital)?|bd)$|^(?:[A-Z]{6}\+)?(?:CM|SF|EC)BX", re.IGNORECASE
)
_SAMPLE = 200
_INVISIBLE = 3
"""PDF text render mode: neither fill nor stroke, the mark of a hidden OCR layer."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a character is set.

    Attributes:
        size: font size on the page, points.
        fixed: its font is one of fixed pitch.
        baseline: distance of its baseline from the top of the page, points.
        upright: it runs from left to right, level.
        angle: radians, counter-clockwise.
    """

    size: float
    bold: bool
    italic: bool
    fixed: bool
    baseline: float
    upright: bool
    angle: float


@dataclass(slots=True)
class Char:
    """A printing character; `bbox` in points of the page as displayed, as high as its font's ascent and descent."""

    text: str
    bbox: BBox
    style: Style


SPACE = Char(" ", (0.0, 0.0, 0.0, 0.0), Style(1.0, False, False, False, 0.0, True, 0.0))
"""A space that the file itself has."""


def read_chars(page: pypdfium2.PdfPage, text_page: pypdfium2.PdfTextPage) -> Iterator[Char | None]:
    """The page's characters in the file's order; SPACE where it has a space, None where a gap or a line end is."""
    raw = text_page.raw
    to_view = view_transform(page)
    turned = math.radians(page.get_rotation())
    rect = pdfium_c.FS_RECTF()
    styles = _Styles(raw, to_view, turned)
    for index in range(min(pdfium_c.FPDFText_CountChars(raw), MAX_CHARS)):
        code = pdfium_c.FPDFText_GetUnicode(raw, index)
        text = chr(code) if code < 0x110000 else "\ufffd"
        if text in _SPACES or not pdfium_c.FPDFText_GetLooseCharBox(raw, index, rect):
            # pdfium puts spaces of its own where it sees a gap; those are guesses.
            typed = text in " \u00a0" and pdfium_c.FPDFText_IsGenerated(raw, index) == 0
            yield SPACE if typed else None
            continue
        bbox = to_view(rect.left, rect.bottom, rect.right, rect.top)
        yield Char(_HYPHENS.get(text, text), bbox, styles.of(index))


class _Styles:
    """How characters are set. It belongs to a text object, and is asked for once per object for speed.

    Some producers write an object for every character, so each call counts here.
    """

    def __init__(
        self,
        raw: pdfium_c.FPDF_TEXTPAGE,
        to_view: Callable[[float, float, float, float], BBox],
        turned: float,
    ) -> None:
        self._raw = raw
        self._to_view = to_view
        self._turned = turned
        self._fonts: dict[int, tuple[bool, bool, bool]] = {}
        self._matrix = pdfium_c.FS_MATRIX()
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._owner: int | None = -1
        self._style = Style(1.0, False, False, False, 0.0, True, 0.0)

    def of(self, index: int) -> Style:
        text_object = pdfium_c.FPDFText_GetTextObject(self._raw, index)
        owner = ctypes.cast(text_object, ctypes.c_void_p).value
        if owner != self._owner or owner is None:
            self._owner = owner
            self._style = self._read(index, text_object if owner else None)
        return self._style

    def _read(self, index: int, text_object: pdfium_c.FPDF_PAGEOBJECT | None) -> Style:
        raw, matrix, x, y = self._raw, self._matrix, self._x, self._y
        size = pdfium_c.FPDFText_GetFontSize(raw, index)
        angle = -self._turned
        if pdfium_c.FPDFText_GetMatrix(raw, index, matrix):
            size *= math.hypot(matrix.b, matrix.d) or 1.0
            angle += math.atan2(matrix.b, matrix.a)
        angle %= 2 * math.pi
        pdfium_c.FPDFText_GetCharOrigin(raw, index, x, y)
        baseline = self._to_view(x.value, y.value, x.value, y.value)[1]
        bold, italic, fixed = self._font(index, text_object)
        return Style(size, bold, italic, fixed, baseline, min(angle, 2 * math.pi - angle) < 0.05, angle)

    def _font(self, index: int, text_object: pdfium_c.FPDF_PAGEOBJECT | None) -> tuple[bool, bool, bool]:
        font = pdfium_c.FPDFTextObj_GetFont(text_object) if text_object else None
        key = (ctypes.cast(font, ctypes.c_void_p).value or 0) if font else 0
        if not key:
            return _font_style(self._raw, index)
        if key not in self._fonts:
            self._fonts[key] = _font_style(self._raw, index)
        return self._fonts[key]


def invisible_share(text_page: pypdfium2.PdfTextPage) -> float:
    """Share of the page's characters that is drawn invisibly, from a sample."""
    count = min(pdfium_c.FPDFText_CountChars(text_page.raw), MAX_CHARS)
    seen, invisible = 0, 0
    for index in range(0, count, max(1, count // _SAMPLE)):
        text_object = pdfium_c.FPDFText_GetTextObject(text_page.raw, index)
        if text_object:
            seen += 1
            invisible += _is_invisible(text_object)
    return invisible / seen if seen else 0.0


def _is_invisible(text_object: pdfium_c.FPDF_PAGEOBJECT) -> bool:
    """Drawn in the invisible mode, or filled with a colour that is wholly transparent."""
    if pdfium_c.FPDFTextObj_GetTextRenderMode(text_object) == _INVISIBLE:
        return True
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    known = pdfium_c.FPDFPageObj_GetFillColor(text_object, red, green, blue, alpha)
    return bool(known) and alpha.value == 0


def view_transform(page: pypdfium2.PdfPage) -> Callable[[float, float, float, float], BBox]:
    """From PDF user space to points of the page as displayed, origin top left."""
    left, bottom, right, top = page.get_bbox()
    rotation = page.get_rotation()

    if rotation == 0:
        return lambda x0, y0, x1, y1: (x0 - left, top - y1, x1 - left, top - y0)

    def corner(x: float, y: float) -> tuple[float, float]:
        if rotation == 90:
            return y - bottom, x - left
        if rotation == 180:
            return right - x, y - bottom
        if rotation == 270:
            return top - y, right - x
        return x - left, top - y

    def transform(x0: float, y0: float, x1: float, y1: float) -> BBox:
        ax, ay = corner(x0, y0)
        bx, by = corner(x1, y1)
        return (min(ax, bx), min(ay, by), max(ax, bx), max(ay, by))

    return transform


def _font_style(raw: pdfium_c.FPDF_TEXTPAGE, index: int) -> tuple[bool, bool, bool]:
    """Whether the font of a character is bold, italic, of fixed pitch; by its flags and name.

    The weight that pdfium reports is guessed from the stems and calls many italics bold.
    """
    buffer = ctypes.create_string_buffer(256)
    flags = ctypes.c_int()
    pdfium_c.FPDFText_GetFontInfo(raw, index, buffer, 256, flags)
    name = buffer.value.decode("utf-8", "replace")
    bold = bool(flags.value & (1 << 18)) or bool(_BOLD_NAME.search(name))
    italic = bool(flags.value & (1 << 6)) or bool(_ITALIC_NAME.search(name))
    return bold, italic, bool(flags.value & 1) or bool(_FIXED_NAME.search(name))


def is_undecodable(char: str) -> bool:
    """No meaning in Unicode: replacement, control, private use."""
    code = ord(char)
    return code == 0xFFFD or code < 0x20 or 0xE000 <= code <= 0xF8FF or code >= 0xF0000
