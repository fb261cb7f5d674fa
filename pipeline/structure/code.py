"""Program code: lines in a font of fixed pitch, put back column by column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from pipeline.page_model import TextLine
from pipeline.structure.inline import StyledWord

MIN_LINES = 2

_SYNTAX = re.compile(r"[{}();=<>#\[\]\\$]|/\*|\*/|^\s*(?:\*|//)|^\s*(?:def|class|import|return|for|if)\b")
_URL = re.compile(r"https?://|www\.|@")


def split_code(lines: Sequence[TextLine]) -> list[tuple[bool, list[TextLine]]]:
    """Split the lines of a column, in reading order, into stretches of code (True) and of text (False)."""
    stretches: list[tuple[bool, list[TextLine]]] = []
    for line in lines:
        fixed = _is_fixed(line)
        if stretches and stretches[-1][0] == fixed:
            stretches[-1][1].append(line)
        else:
            stretches.append((fixed, [line]))
    merged: list[tuple[bool, list[TextLine]]] = []
    for fixed, run in stretches:
        is_code = fixed and _reads_as_code(run)
        if merged and not is_code and not merged[-1][0]:
            merged[-1][1].extend(run)
        else:
            merged.append((is_code, run))
    return merged


def code_text(lines: Sequence[TextLine]) -> str:
    """The lines as they stand in the source: indented, every word in its column."""
    pitch = max(0.1, median((w.bbox[2] - w.bbox[0]) / len(w.text) for line in lines for w in line.words))
    left = min(line.bbox[0] for line in lines)
    rows: dict[float, str] = {}
    for line in sorted(lines, key=lambda line: (line.bbox[3], line.bbox[0])):
        key = next((y for y in rows if abs(y - line.bbox[3]) < pitch), line.bbox[3])
        row = rows.get(key, "")
        row = row.ljust(round((line.bbox[0] - left) / pitch)) + line.words[0].text
        for last, word in pairwise(line.words):
            # Letters set apart widen the gaps too: a second space must be nearly whole.
            row += " " * int((word.bbox[0] - last.bbox[2]) / pitch + 0.35) + word.text
        rows[key] = row
    return "\n".join(rows[y] for y in sorted(rows))


def _is_fixed(line: TextLine) -> bool:
    return all(isinstance(word, StyledWord) and word.fixed for word in line.words)


def _reads_as_code(run: Sequence[TextLine]) -> bool:
    """Several lines with the marks of a programming language; an address in typewriter letters is text."""
    rows = {round(line.bbox[3]) for line in run}
    marked = sum(bool(_SYNTAX.search(line.text)) and not _URL.search(line.text) for line in run)
    return len(rows) >= MIN_LINES and marked * 2 >= len(run)
