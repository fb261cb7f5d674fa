"""Answered blocks to a `PageModel`: the page's own text put in, what failed filled in another way, all in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy

from pipeline import mineru, mineru_vlm
from pipeline.errors import PageFailed
from pipeline.models import Models
from pipeline.page_model import Block, PageModel, TextLine
from pipeline.page_source import PageSource
from pipeline.routes.vlm.extract import Extraction
from pipeline.routes.vlm.fallback import fall_back
from pipeline.routes.vlm.text import READ_BY_MODEL, OwnText, font_size, write_text
from pipeline.structure.geometry import body_size, covered
from pipeline.structure.headings import rank_headings
from pipeline.structure.page import build_blocks

_SAME_WORDS = 0.5
"""Share of a table's words, as the file has them, that its answer must have too. A right one has nearly all; the rest
allows for formulas and for words that are cut differently."""

_ENOUGH_WORDS = 8

_MARGIN = 0.08
"""Share of the page's height, at the top and at the bottom, where running headers and footers stand."""

_FURNITURE = ("header", "footer", "page_number")
_WORDS = re.compile(r"\w+")
_TAGS = re.compile(r"<[^>]+>")


def build_page(page: PageSource, found: Extraction, own: OwnText | None, models: Models) -> PageModel:
    """Make a page of what the engine said.

    Args:
        page: the page itself.
        found: its blocks; changed in place.
        own: its text layer shared out among them; None where there is none to trust.
        models: of this process, for what the engine did not read.

    Raises:
        PageFailed: MinerU's own model of a page does not allow what came out.
    """
    by_block = own.by_block if own else {}
    known = own.known(found.blocks) if own else set()
    for index, block in enumerate(found.blocks):
        block["_block"] = index
        if index in found.asked - found.failures.keys() and not (block["content"] or "").strip():
            found.failures[index] = "the answer was empty"
    warnings: list[str] = []
    finished = mineru_vlm.finish(_without_broken_groups(found))
    _refuse_tables(finished, found, by_block)
    for block in finished:
        # Several formulas that MinerU made one of are none of the blocks that there were.
        index = block.get("_block", -1)
        lines = by_block.get(index, [])
        if index in known or (block["type"] in mineru_vlm.VISUALS and lines):
            write_text(block, lines, page.size_pt)
            block["_size"] = font_size(lines)
        elif index in found.failures:
            kind = block["type"]
            how = fall_back(block, lines, page, models)
            warnings.append(f"Block {index + 1} ({kind}) is from {how}: {found.failures[index]}.")
    blocks = _page_blocks(finished)
    if own is not None:
        for extra in _extra_blocks(own.unclaimed, page.size_pt):
            _insert(blocks, extra)
    return _model(page, blocks, own, warnings)


def _without_broken_groups(found: Extraction) -> list[Block]:
    """The blocks without those that would join formulas of which one has no answer: MinerU joins all or fails."""
    broken = [found.blocks[index]["bbox"] for index in found.failures if found.blocks[index]["type"] == "equation"]
    return [
        block
        for block in found.blocks
        if block["type"] != "equation_block" or not any(covered(box, block["bbox"]) > 0.5 for box in broken)
    ]


def _refuse_tables(blocks: Sequence[Block], found: Extraction, by_block: dict[int, list[TextLine]]) -> None:
    """Tables that are none, or say something else than the page, count as failures."""
    for block in blocks:
        index, html = block.get("_block", -1), block["content"] or ""
        if block["type"] != "table" or index in found.failures:
            continue
        if "<td" not in html:
            found.failures[index] = "the answer was no table"
        elif not _says_the_same(html, by_block.get(index, [])):
            found.failures[index] = "the answer was not what the page says"


def _says_the_same(html: str, lines: Sequence[TextLine]) -> bool:
    wanted = Counter(_WORDS.findall(" ".join(line.text for line in lines).lower()))
    if wanted.total() < _ENOUGH_WORDS:
        return True
    said = Counter(_WORDS.findall(_TAGS.sub(" ", html).lower()))
    return (wanted & said).total() >= _SAME_WORDS * wanted.total()


def _page_blocks(finished: Sequence[Block]) -> list[Block]:
    for block in finished:
        if block["content"] is None and block["type"] in READ_BY_MODEL:
            block["content"] = ""
    blocks = mineru_vlm.page_blocks(finished)
    for block in blocks:
        block.pop("_block", None)
    return blocks


def _extra_blocks(lines: Sequence[TextLine], size_pt: tuple[float, float]) -> list[Block]:
    """Text that no block claims, as blocks of its own."""
    blocks = build_blocks(lines, [], [], size_pt)
    for block in blocks:
        inside = block["bbox"][3] > _MARGIN and block["bbox"][1] < 1 - _MARGIN
        if block["type"] in _FURNITURE and inside:
            block["type"] = "text"
    return blocks


def _insert(blocks: list[Block], extra: Block) -> None:
    """Put a block where it stands: after the last one above it in its column, else before the first one below."""
    x0, y0, x1, y1 = extra["bbox"]
    middle = (y0 + y1) / 2
    column = [i for i, b in enumerate(blocks) if min(x1, b["bbox"][2]) > max(x0, b["bbox"][0])]
    above = [i for i in column if (blocks[i]["bbox"][1] + blocks[i]["bbox"][3]) / 2 <= middle]
    below = [i for i in column if i not in above] or [i for i, b in enumerate(blocks) if b["bbox"][1] > middle]
    place = max(above) + 1 if above else min(below, default=len(blocks))
    blocks.insert(place, extra)


def _model(page: PageSource, blocks: list[Block], own: OwnText | None, warnings: list[str]) -> PageModel:
    if mineru.has_pictures(blocks):
        mineru.attach_pictures(blocks, page.image)
    mineru.normalise(blocks)
    body = body_size(page.text.lines) if own else 1.0
    rank_headings(blocks, [block.pop("_size", 0.0) for block in blocks], body)
    if own is None and page.index == 0:
        _name_the_document(blocks)
    width, height = page.size_pt
    model = PageModel(blocks, width, height, warnings=warnings)
    try:
        # What a model writes has no end of forms. One that MinerU does not take costs its page this route, now, and
        # not the whole document its assembly.
        mineru.build_document([deepcopy(model)], pages=(0,), page_count=1, ocr=False, properties=None)
    except ValueError as error:
        raise PageFailed(f"MinerU does not take the page ({str(error).splitlines()[0][:120]})") from None
    return model


def _name_the_document(blocks: Sequence[Block]) -> None:
    """Without sizes of fonts: the heading that a document begins with is its title."""
    if any(block["type"] == "doc_title" for block in blocks):
        return
    first = next((block for block in blocks if block["type"] not in _FURNITURE), None)
    if first is not None and first["type"] == "paragraph_title":
        first["type"] = "doc_title"
        first.pop("level", None)
