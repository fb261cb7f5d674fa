"""The two steps of one page: its layout, then its blocks, several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from PIL import Image

from pipeline import mineru_vlm
from pipeline.errors import EngineUnavailable
from pipeline.page_model import BBox, Block
from pipeline.routes.vlm.budget import LAYOUT_TOKENS, block_tokens
from pipeline.routes.vlm.completions import Completions, NoAnswer
from pipeline.routes.vlm.plausible import check_layout


@dataclass(slots=True)
class Extraction:
    """What the engine said about a page.

    Attributes:
        blocks: the layout in reading order; `content` as the model wrote it, None where it was not asked.
        asked: indices of the blocks that the engine was asked to read.
        failures: why one of them has no answer, by its index.
    """

    blocks: list[Block]
    asked: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)


async def extract(
    completions: Completions,
    image: Image.Image,
    size_pt: tuple[float, float],
    known: Callable[[list[Block]], set[int]],
    deadline: float,
) -> Extraction:
    """Ask for a page.

    Args:
        image: the page, RGB.
        size_pt: its size in points.
        known: answers which blocks of a layout need not be read.
        deadline: by `time.monotonic`; blocks without an answer by then have failed.

    Raises:
        GarbageLayout: nothing of the layout can be used.
        NoAnswer: there is no layout.
        EngineUnavailable: of any question.
    """
    request = await asyncio.to_thread(mineru_vlm.layout_request, image)
    try:
        answer = await completions.ask(request, LAYOUT_TOKENS, deadline)
    except NoAnswer as failure:
        raise NoAnswer(f"no layout: {failure.message}") from None
    blocks, named = mineru_vlm.parse_layout(answer)
    await asyncio.to_thread(check_layout, blocks, named, image)
    requests = await asyncio.to_thread(mineru_vlm.block_requests, image, blocks)
    needless = known(blocks)
    wanted = [request for request in requests if request.block not in needless]
    found = Extraction(blocks, {request.block for request in wanted if request.block is not None})

    async def read(request: mineru_vlm.VlmRequest) -> None:
        assert request.block is not None
        block = blocks[request.block]
        try:
            block["content"] = await completions.ask(request, _tokens(block, size_pt), deadline)
        except NoAnswer as failure:
            found.failures[request.block] = failure.message

    try:
        async with asyncio.TaskGroup() as group:
            for request in wanted:
                group.create_task(read(request))
    except* EngineUnavailable as errors:
        # One is as good as all of them; the others were withdrawn.
        raise errors.exceptions[0] from None
    return found


def _tokens(block: Block, size_pt: tuple[float, float]) -> int:
    return block_tokens(block["type"], points(block["bbox"], size_pt))


def points(bbox: list[float], size_pt: tuple[float, float]) -> BBox:
    """A block's box in page points."""
    width, height = size_pt
    return bbox[0] * width, bbox[1] * height, bbox[2] * width, bbox[3] * height
