"""Rows of dots, dashes or stars: drawn with letters, but not to be read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.page_model import TextLine
from pipeline.structure.geometry import same_row

_ORNAMENT = re.compile(r"^[\s.\-_=*~·•․…‥─━═–—]+$")

MIN_SIGNS = 5
"""Fewer may stand for something: an omission, a dash in a table, a break between scenes."""

MAX_ROWS = 300
"""A page with more of them is a picture made of letters, or made to keep us busy."""

_REACH = 3.0
"""Line heights within which a row of dots leads to what stands beside it."""


def without_ornaments(lines: Sequence[TextLine]) -> list[TextLine]:
    """The lines that say something.

    Leaders between two entries, and the rule on which a form is filled in, stay: they stand beside words.
    """
    ornaments = [line for line in lines if _is_ornament(line)]
    if not ornaments or len(ornaments) > MAX_ROWS:
        return list(lines)
    gone = {id(line) for line in ornaments if not _leads(line, lines)}
    return [line for line in lines if id(line) not in gone]


def _is_ornament(line: TextLine) -> bool:
    signs = line.text.replace("…", "...").replace("‥", "..")
    return bool(_ORNAMENT.match(line.text)) and len("".join(signs.split())) >= MIN_SIGNS


def _leads(line: TextLine, lines: Sequence[TextLine]) -> bool:
    reach = _REACH * (line.font_size or line.bbox[3] - line.bbox[1])
    return any(
        max(line.bbox[0], other.bbox[0]) - min(line.bbox[2], other.bbox[2]) < reach
        and same_row(line.bbox, other.bbox)
        and not _is_ornament(other)
        for other in lines
        if other is not line
    )
