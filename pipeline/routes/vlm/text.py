"""A page's own text, block by block: what the file says needs no reading, and what no block claims is not lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from pipeline.characters import is_undecodable
from pipeline.mineru_vlm import CONTAINERS, VISUALS
from pipeline.page_model import BBox, Block, TextLine, Word
from pipeline.routes.vlm.extract import points
from pipeline.structure.code import code_text
from pipeline.structure.geometry import area, body_size, line_height, union
from pipeline.structure.inline import StyledWord, spans
from pipeline.structure.order import Item, reading_order
from pipeline.structure.paragraphs import join_rows

READ_BY_MODEL = frozenset({"table", "equation", "algorithm"}) | VISUALS | CONTAINERS
"""Blocks that are more than their text: their content never comes from the text layer while there is another."""

_SET_APART = frozenset({"title", "doc_title", "paragraph_title", "header", "footer"})
"""Blocks that are bold by being what they are."""

_NEAR = 2.5
"""Points that a word may lie outside a box and still be the box's: layouts come in thousandths of a page."""

_BROKEN = 0.1
"""Share of characters without meaning from which the text layer is no help within a block."""


@dataclass(frozen=True, slots=True)
class OwnText:
    """The text layer, shared out.

    Attributes:
        by_block: pieces of lines in each block, by its index, in the file's order.
        unclaimed: lines that lie in no block.
    """

    by_block: dict[int, list[TextLine]]
    unclaimed: list[TextLine]

    def known(self, blocks: Sequence[Block]) -> set[int]:
        """The blocks whose text the file has."""
        return {
            index
            for index, lines in self.by_block.items()
            if blocks[index]["type"] not in READ_BY_MODEL and _is_sound(lines)
        }


def share_out(lines: Sequence[TextLine], blocks: Sequence[Block], size_pt: tuple[float, float]) -> OwnText:
    """Give every word to the smallest block that it stands in.

    Args:
        lines: of the text layer, points.
        blocks: of a layout.
        size_pt: page size, points.
    """
    boxes = [
        (index, points(block["bbox"], size_pt)) for index, block in enumerate(blocks) if block["type"] not in CONTAINERS
    ]
    boxes.sort(key=lambda entry: area(entry[1]))
    pieces: dict[int, list[TextLine]] = {}
    unclaimed: list[TextLine] = []
    for line in lines:
        owners = [_owner(word.bbox, boxes) for word in line.words]
        for owner, piece in _cut(line, owners):
            if owner is None:
                unclaimed.append(piece)
            else:
                pieces.setdefault(owner, []).append(piece)
    return OwnText(pieces, unclaimed)


def write_text(block: Block, pieces: Sequence[TextLine], size_pt: tuple[float, float] | None = None) -> None:
    """Put the text of a block into it, in place, as MinerU's page model has it.

    Args:
        block: of any type that is text, or a picture, whose text is then what can be searched for.
        pieces: of its lines (at least one).
        size_pt: page size, if the pieces are in points of the page; for the boxes of its lines.
    """
    lines = _in_order(pieces)
    kind = block["type"]
    if kind == "code":
        block["content"] = code_text(pieces)
    elif kind == "formula_number":
        # MinerU puts it into the formula, as text.
        block["content"] = " ".join(line.text for line in lines)
    elif kind in VISUALS:
        block["content"] = "\n".join(line.text for line in lines)
    else:
        block["content"] = spans(lines, ("bold", "italic") if kind in _SET_APART else ())
    if size_pt is not None:
        block["lines"] = [{"bbox": _unit(line.bbox, size_pt)} for line in lines]


def font_size(lines: Sequence[TextLine]) -> float:
    """The size that most of the text is set in, points."""
    return body_size(lines) if lines else 0.0


def _in_order(lines: Sequence[TextLine]) -> list[TextLine]:
    """Pieces of one block as they are read, those of one row joined."""
    items = [Item(number, line.bbox) for number, line in enumerate(lines)]
    return join_rows([lines[i] for column in reading_order(items, line_height(lines)) for i in column])


def _unit(bbox: BBox, size_pt: tuple[float, float]) -> list[float]:
    """Page points as a share of the page, with an extent, as MinerU demands it."""
    width, height = size_pt
    x0, y0, x1, y1 = (
        round(min(1.0, max(0.0, value)), 4)
        for value in (bbox[0] / width, bbox[1] / height, bbox[2] / width, bbox[3] / height)
    )
    x0, y0 = min(x0, 0.9998), min(y0, 0.9998)
    return [x0, y0, max(x1, x0 + 0.0001), max(y1, y0 + 0.0001)]


def _owner(word: BBox, boxes: Sequence[tuple[int, BBox]]) -> int | None:
    x, y = (word[0] + word[2]) / 2, (word[1] + word[3]) / 2
    for margin in (0.0, _NEAR):
        for index, box in boxes:
            if box[0] - margin <= x <= box[2] + margin and box[1] - margin <= y <= box[3] + margin:
                return index
    return None


def _cut(line: TextLine, owners: Sequence[int | None]) -> Iterable[tuple[int | None, TextLine]]:
    """The line in pieces, one for each run of words of one block."""
    if len(set(owners)) == 1:
        yield owners[0], line
        return
    for owner, run in groupby(zip(owners, line.words, strict=True), key=lambda pair: pair[0]):
        words = tuple(word for _, word in run)
        yield owner, replace(line, text=_joined(words), bbox=union(word.bbox for word in words), words=words)


def _joined(words: Sequence[Word]) -> str:
    return "".join(
        word.text if number == 0 or (isinstance(word, StyledWord) and word.glued) else " " + word.text
        for number, word in enumerate(words)
    )


def _is_sound(lines: Sequence[TextLine]) -> bool:
    chars = "".join(line.text for line in lines).replace(" ", "")
    return bool(chars) and sum(map(is_undecodable, chars)) <= _BROKEN * len(chars)
