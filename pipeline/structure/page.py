"""One page's lines, regions and tables to MinerU blocks in reading order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.page_model import BBox, Block, Region, RegionKind, Table, TextLine, Word
from pipeline.structure.code import code_text, split_code
from pipeline.structure.figures import holds_prose
from pipeline.structure.furniture import find_furniture
from pipeline.structure.geometry import area, body_size, covered, line_height, said, same_row, union
from pipeline.structure.headings import is_heading, rank_headings
from pipeline.structure.inline import plain, spans
from pipeline.structure.lists import find_lists, item_spans
from pipeline.structure.order import Item, reading_order
from pipeline.structure.ornaments import without_ornaments
from pipeline.structure.paragraphs import Paragraph, join_rows, paragraphs

_PICTURES = (RegionKind.FIGURE, RegionKind.EQUATION)


def build_blocks(
    lines: Sequence[TextLine],
    regions: Sequence[Region],
    tables: Sequence[Table],
    size_pt: tuple[float, float],
    rules: Sequence[BBox] = (),
    by_line: bool = False,
) -> list[Block]:
    """Put a page together.

    Args:
        lines: the page's text, points, in any order; a line never crosses a gutter.
        regions: what the layout model saw. Figures and equations become pictures, titles and captions are
            typed by it; all other text is ordered by its own geometry, so text that no region claims stays.
        tables: recognised tables; lines inside one are its text and do not appear again.
        size_pt: page width and height, points.
        rules: horizontal rules, points; one of them may part the text from a running header.
        by_line: the page is written by hand, or as hard to read as that: each line is a paragraph.

    Returns:
        Blocks in reading order, running headers, footers and page numbers among them under their own types.
        Pictures carry no `image_base64` yet.
    """
    if size_pt[0] <= 0 or size_pt[1] <= 0:
        return []
    lines = without_ornaments(lines)
    free = [line for line in lines if not any(covered(line.bbox, t.bbox) > 0.5 for t in tables)]
    pictures, free = _pictures(free, regions, tables, size_pt)
    solid = [t.bbox for t in tables] + [p.bbox for p in pictures if p.kind is RegionKind.FIGURE]
    furniture = find_furniture(free, regions, size_pt, solid, rules, by_line)
    body = body_size(free)
    text = [(i, line) for i, line in enumerate(free) if i not in furniture.all]

    items: list[Item] = []
    content: list[TextLine | Table | _Picture] = []
    for thing in [line for _, line in text] + list(tables) + pictures:
        atomic = not isinstance(thing, TextLine)
        heading = isinstance(thing, TextLine) and _looks_like_heading(thing, body)
        items.append(Item(len(content), thing.bbox, heading=heading, atomic=atomic))
        content.append(thing)

    page = _Page(size_pt, body, by_line)
    blocks: list[Block] = []
    blocks += _furniture_blocks(free, furniture.headers, "header", size_pt)
    for column in reading_order(items, line_height(free)):
        blocks += _column_blocks([content[i] for i in column], regions, page)
    blocks += _furniture_blocks(free, furniture.footers, "footer", size_pt)
    blocks += [_text_block("page_number", spans([free[i]]), free[i].bbox, size_pt) for i in furniture.page_numbers]
    rank_headings(blocks, [block.pop("_size", 0.0) for block in blocks], body)
    return blocks


@dataclass(frozen=True, slots=True)
class _Page:
    size_pt: tuple[float, float]
    body: float
    by_line: bool


def margin_notes(slanted: Sequence[Word], size_pt: tuple[float, float]) -> list[Block]:
    """Words that do not run horizontally and belong to nothing else, as MinerU's aside text.

    Args:
        slanted: in the file's order; those that lie near each other become one block.
        size_pt: page size, points.
    """
    groups: list[list[Word]] = []
    for word in slanted:
        if groups and _touching(groups[-1][-1].bbox, word.bbox):
            groups[-1].append(word)
        else:
            groups.append([word])
    return [
        _text_block("aside_text", plain(" ".join(w.text for w in group)), union(w.bbox for w in group), size_pt)
        for group in groups
    ]


def _touching(a: BBox, b: BBox) -> bool:
    reach = 2 * min(max(a[2] - a[0], 1.0), max(a[3] - a[1], 1.0))
    return max(a[0], b[0]) - min(a[2], b[2]) < reach and max(a[1], b[1]) - min(a[3], b[3]) < reach


@dataclass(frozen=True, slots=True)
class _Picture:
    kind: RegionKind
    bbox: BBox
    text: str


def _pictures(
    lines: list[TextLine], regions: Sequence[Region], tables: Sequence[Table], size_pt: tuple[float, float]
) -> tuple[list[_Picture], list[TextLine]]:
    """Figures and equations, with the text that stands in them, and the lines that are left."""
    pictures: list[_Picture] = []
    for region in sorted(regions, key=lambda r: -area(r.bbox)):
        if region.kind not in _PICTURES:
            continue
        if any(covered(region.bbox, t.bbox) > 0.5 or covered(t.bbox, region.bbox) > 0.5 for t in tables):
            continue
        if any(covered(region.bbox, p.bbox) > 0.5 for p in pictures):
            continue
        inside = [line for line in lines if covered(line.bbox, region.bbox) > 0.6]
        if not _is_picture(region, inside, size_pt):
            continue
        text = "\n".join(line.text for line in join_rows(_by_rows(inside)))
        pictures.append(_Picture(region.kind, region.bbox, text))
        taken = {id(line) for line in inside}
        lines = [line for line in lines if id(line) not in taken]
    return pictures, lines


def _is_picture(region: Region, inside: Sequence[TextLine], size_pt: tuple[float, float]) -> bool:
    """Whether a region is better shown than read: prose inside means the model was wrong."""
    if region.kind is RegionKind.EQUATION:
        return not _reads_as_text(inside)
    return not holds_prose(inside, region.bbox)


def _reads_as_text(inside: Sequence[TextLine]) -> bool:
    """A formula set on one row reads as text; stacked ones (fractions, sums) do not."""
    if not inside:
        return False
    main = max(inside, key=lambda line: line.bbox[2] - line.bbox[0])
    return all(
        same_row(line.bbox, main.bbox) and abs(line.bbox[3] - main.bbox[3]) < 0.35 * _height(line) for line in inside
    )


def _height(line: TextLine) -> float:
    return line.bbox[3] - line.bbox[1]


def _by_rows(lines: Sequence[TextLine]) -> list[TextLine]:
    items = [Item(i, line.bbox) for i, line in enumerate(lines)]
    return [lines[i] for column in reading_order(items, line_height(lines)) for i in column]


def _looks_like_heading(line: TextLine, body: float) -> bool:
    size = line.font_size or line.bbox[3] - line.bbox[1]
    words = sum(c.isalpha() for c in line.text) >= 4 and "=" not in line.text
    return words and (bool(line.bold) or size > 1.12 * body) and len(line.text) < 120


def _column_blocks(
    column: Sequence[TextLine | Table | _Picture],
    regions: Sequence[Region],
    page: _Page,
) -> list[Block]:
    size_pt = page.size_pt
    blocks: list[Block] = []
    run: list[TextLine] = []

    def flush() -> None:
        for is_code, lines in split_code(run):
            if is_code:
                box = union(line.bbox for line in lines)
                blocks.append({"type": "code", "bbox": _unit(box, size_pt), "content": code_text(lines)})
            else:
                write(lines)
        run.clear()

    def write(lines: list[TextLine]) -> None:
        found = paragraphs(lines, page.body, page.by_line)
        kinds = [_paragraph_type(found, i, regions, page.body) for i in range(len(found))]
        lists = find_lists(found, [kind == "text" for kind in kinds])
        items = {item.index: item for run in lists for item in run}
        begins = {run[0].index: [found[item.index].bbox for item in run] for run in lists}
        for number, (paragraph, kind) in enumerate(zip(found, kinds, strict=True)):
            if number in begins:
                # MinerU takes into a list what lies in its box.
                blocks.append({"type": "list", "bbox": _unit(union(begins[number]), size_pt), "content": []})
            content = spans(paragraph.lines, ("bold", "italic") if kind == "paragraph_title" else ())
            if number in items:
                content = item_spans(items[number], content)
            block = _text_block(kind, content, paragraph.bbox, size_pt)
            block["lines"] = [{"bbox": _unit(line.bbox, size_pt)} for line in paragraph.lines]
            block["_size"] = paragraph.font_size
            blocks.append(block)

    for thing in column:
        if isinstance(thing, TextLine):
            run.append(thing)
            continue
        flush()
        if isinstance(thing, Table):
            blocks.append({"type": "table", "bbox": _unit(thing.bbox, size_pt), "content": thing.html})
        elif thing.kind is RegionKind.EQUATION and not thing.text:
            blocks.append({"type": "equation", "bbox": _unit(thing.bbox, size_pt), "content": ""})
        else:
            blocks.append({"type": "image", "bbox": _unit(thing.bbox, size_pt), "content": thing.text})
    flush()
    return blocks


def _paragraph_type(found: Sequence[Paragraph], number: int, regions: Sequence[Region], body: float) -> str:
    paragraph = found[number]
    if paragraph.caption:
        kinds = (RegionKind.FIGURE_CAPTION, RegionKind.TABLE_CAPTION)
        if said(paragraph.bbox, regions, kinds) or len(paragraph.lines) <= 6:
            return "caption"
    if is_heading(found, number, regions, body):
        return "paragraph_title"
    return "text"


def _furniture_blocks(
    lines: Sequence[TextLine], chosen: frozenset[int], kind: str, size_pt: tuple[float, float]
) -> list[Block]:
    ordered = sorted((lines[i] for i in chosen), key=lambda line: (line.bbox[1], line.bbox[0]))
    return [_text_block(kind, spans([line], ("bold", "italic")), line.bbox, size_pt) for line in join_rows(ordered)]


def _text_block(kind: str, content: list[dict[str, Any]], bbox: BBox, size_pt: tuple[float, float]) -> Block:
    return {"type": kind, "bbox": _unit(bbox, size_pt), "content": content}


def _unit(bbox: BBox, size_pt: tuple[float, float]) -> list[float]:
    width, height = size_pt

    def clamp(value: float) -> float:
        return round(min(1.0, max(0.0, value)), 4)

    x0, y0 = clamp(bbox[0] / width), clamp(bbox[1] / height)
    # MinerU refuses a box without extent.
    x1, y1 = clamp(bbox[2] / width), clamp(bbox[3] / height)
    return [min(x0, 0.9998), min(y0, 0.9998), max(x1, x0 + 0.0001), max(y1, y0 + 0.0001)]
