"""Everything that reaches into mineru_vl_utils, and into MinerU for what a VLM gives, in one place.

Pinned exactly; `tests/pipeline/test_mineru_vlm_contract.py` fails with the name of what moved, and holds our
steps against MinerU's own two-step extraction.

MinerU's client runs both steps in one go and stops at the first error. The route needs what lies between: a look at
the layout before blocks are asked for, blocks whose text is known already, an end for each block by itself. So the
steps of its helper are called one by one: `layout_request`, `parse_layout`, `block_requests`, `finish`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from PIL import Image

from pipeline.page_model import Block

MINERU_VL_UTILS_VERSION = "2.0.7"

CONTAINERS = frozenset({"list", "image_block", "equation_block"})
"""Layout blocks that only hold others."""

VISUALS = frozenset({"image", "chart"})
"""Layout blocks that are shown and not read."""

_OURS = {"title": "paragraph_title", "algorithm": "code"}

_BOX = re.compile(r"<\|box_start\|>")


@dataclass(frozen=True, slots=True)
class VlmRequest:
    """One question about one picture.

    Attributes:
        image: RGB.
        prompt: MinerU's words for what is to be done.
        sampling: how tokens are chosen, by the names of OpenAI's API and of vLLM's extensions to it.
        block: index of the layout block that it is about; None for the layout itself.
    """

    image: Image.Image
    prompt: str
    sampling: dict[str, Any]
    block: int | None = None


class Predictor(Protocol):
    """Whoever answers requests."""

    async def __call__(self, request: VlmRequest) -> str: ...


def layout_request(page: Image.Image) -> VlmRequest:
    """The first step: what stands where. The picture is brought to the 1036 x 1036 pixels that the model knows."""
    client = _client()
    prompt = client.prompts["[layout]"]
    return VlmRequest(client.helper.prepare_for_layout(page), prompt, _sampling(client.sampling_params["[layout]"]))


def parse_layout(answer: str) -> tuple[list[Block], int]:
    """The blocks of a layout answer, in reading order, and how many boxes it names in all.

    Boxes out of range, of unknown type or doubled are left out of the blocks. Each block has `type`, `bbox` (unit
    coordinates), `angle` and `content` (None so far).
    """
    return list(_client().helper.parse_layout_output(answer)), len(_BOX.findall(answer))


def block_requests(page: Image.Image, blocks: list[Block]) -> list[VlmRequest]:
    """The second step: a question for each block that has something to be read.

    Args:
        page: RGB.
        blocks: from `parse_layout`; captions that lie within pictures are taken out of it.
    """
    client = _client()
    asked = client.helper.prepare_for_extract(page, blocks)
    return [
        VlmRequest(image, prompt, _sampling(params), index) for image, prompt, params, index in zip(*asked, strict=True)
    ]


def finish(blocks: list[Block]) -> list[Block]:
    """MinerU's clean-up of answered blocks: OTSL to HTML, LaTeX mended, list items and formulas of several lines."""
    return list(_client().helper.post_process(blocks))


def page_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Finished blocks in MinerU's page model: its own types for captions and footnotes, numbers put to their formulas.

    Titles come as `paragraph_title`; which of them names the document is for the caller to say. An algorithm comes as
    code, of which MinerU's normalisation makes an algorithm again where formulas are in it. Of the fields, MinerU's
    own stay, `lines`, and what begins with an underscore, which is the caller's.
    """
    from mineru.backend.analysis.pdf.constants import VLM_MODEL_LIST_FIELDS, VLM_VISUAL_ANNOTATION_TYPE_MAP
    from mineru.backend.analysis.pdf.formulas import optimize_hybrid_formula_number_blocks

    converted = []
    for block in blocks:
        kind = VLM_VISUAL_ANNOTATION_TYPE_MAP.get(block["type"], block["type"])
        kind = _OURS.get(kind, str(getattr(kind, "value", kind)))
        kept = {*VLM_MODEL_LIST_FIELDS, "lines"}
        fields = {name: deepcopy(value) for name, value in block.items() if name in kept or name.startswith("_")}
        converted.append({**fields, "type": kind})
    return list(optimize_hybrid_formula_number_blocks(converted))


def mineru_client(predict: Predictor) -> Any:
    """A `mineru_vl_utils.MinerUClient` whose questions go to `predict`, for whoever wants MinerU's own extraction."""
    from mineru_vl_utils.vlm_client.base_client import SamplingParams, VlmClient

    class Client(VlmClient):
        """MinerU's list of backends is closed; a subclass of its base put in their place is not."""

        async def aio_predict(
            self,
            image: Any,
            prompt: str = "",
            sampling_params: SamplingParams | None = None,
            priority: int | None = None,
        ) -> str:
            return await predict(VlmRequest(image, prompt, _sampling(sampling_params)))

        async def aio_batch_predict(
            self,
            images: Sequence[Any],
            prompts: Sequence[str] | str = "",
            sampling_params: Any = None,
            priority: Any = None,
            semaphore: asyncio.Semaphore | None = None,
            use_tqdm: bool = False,
            tqdm_desc: str | None = None,
        ) -> list[str]:
            count = len(images)
            all_prompts = [prompts] * count if isinstance(prompts, str) else prompts
            all_params = sampling_params if isinstance(sampling_params, list | tuple) else [sampling_params] * count
            asked = zip(images, all_prompts, all_params, strict=True)
            return list(await asyncio.gather(*(self.aio_predict(*one) for one in asked)))

    client = _new_client()
    client.client = Client()
    return client


@lru_cache(maxsize=1)
def _client() -> Any:
    return _new_client()


def _new_client() -> Any:
    from mineru_vl_utils import MinerUClient

    # Of its backends the one that needs no model; its own client is never used. `backend` tells the helper to hand
    # out pictures as they are and not as PNG files.
    client = MinerUClient(
        backend="http-client",
        server_url="http://localhost",
        model_name="-",
        skip_model_name_checking=True,
        use_tqdm=False,
    )
    client.helper.backend = "ours"
    return client


def _sampling(params: Any) -> dict[str, Any]:
    """MinerU's sampling parameters by the names that its http-client gives them on the wire."""
    if params is None:
        return {}
    names = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "repetition_penalty")
    found = {name: value for name in names if (value := getattr(params, name)) is not None}
    if params.no_repeat_ngram_size is not None:
        found["vllm_xargs"] = {"no_repeat_ngram_size": params.no_repeat_ngram_size}
    return found
