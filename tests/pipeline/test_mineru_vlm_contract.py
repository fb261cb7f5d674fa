"""What `pipeline.mineru_vlm` takes from mineru_vl_utils is still there and still means the same.

When a pin is raised, a failure here names the piece that moved.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from importlib.metadata import version

import pypdfium2
import pytest
from PIL import Image

from pipeline import mineru, mineru_vlm
from pipeline.mineru_vlm import VlmRequest
from pipeline.page_model import PageModel
from tests.documents import drawn_pdf
from tests.pipeline.routes.scripted_vlm import ScriptedVlm
from tests.pipeline.routes.vlm_pages import LATEX, REPORT, ROWS, report
from tests.pipeline.structure.build import grid


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Image.Image:
    path = drawn_pdf(tmp_path_factory.mktemp("contract") / "a.pdf", [report])
    return pypdfium2.PdfDocument(path)[0].render(scale=200 / 72).to_pil().convert("RGB")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> ScriptedVlm:
    return ScriptedVlm(drawn_pdf(tmp_path_factory.mktemp("script") / "a.pdf", [report]), [REPORT])


def answers(script: ScriptedVlm, request: VlmRequest) -> str:
    page, block = script.recognise(request.image, layout="Layout" in request.prompt)
    return script.answer_of(page, block)[0]


def test_the_installed_version_is_the_one_it_was_written_for() -> None:
    assert version("mineru-vl-utils") == mineru_vlm.MINERU_VL_UTILS_VERSION


@pytest.mark.parametrize(
    "hook",
    [
        "mineru_vl_utils:MinerUClient",
        "mineru_vl_utils.mineru_client:MinerUClientHelper.prepare_for_layout",
        "mineru_vl_utils.mineru_client:MinerUClientHelper.parse_layout_output",
        "mineru_vl_utils.mineru_client:MinerUClientHelper.prepare_for_extract",
        "mineru_vl_utils.mineru_client:MinerUClientHelper.post_process",
        "mineru_vl_utils.vlm_client.base_client:VlmClient.aio_predict",
        "mineru_vl_utils.vlm_client.base_client:VlmClient.aio_batch_predict",
        "mineru.backend.analysis.pdf.constants:VLM_MODEL_LIST_FIELDS",
        "mineru.backend.analysis.pdf.constants:VLM_VISUAL_ANNOTATION_TYPE_MAP",
        "mineru.backend.analysis.pdf.formulas:optimize_hybrid_formula_number_blocks",
    ],
)
def test_every_hook_is_where_it_was(hook: str) -> None:
    module, _, attribute = hook.partition(":")
    found = importlib.import_module(module)
    for name in attribute.split("."):
        assert hasattr(found, name), f"{hook} has moved: {name} is gone. Adapt pipeline/mineru_vlm.py"
        found = getattr(found, name)


def test_our_client_takes_what_minerus_takes() -> None:
    from mineru_vl_utils.vlm_client.base_client import VlmClient

    async def nothing(request: VlmRequest) -> str:
        return ""

    ours = type(mineru_vlm.mineru_client(nothing).client)
    for name in ("aio_predict", "aio_batch_predict"):
        theirs = list(inspect.signature(getattr(VlmClient, name)).parameters)
        assert list(inspect.signature(getattr(ours, name)).parameters) == theirs


def test_our_steps_give_what_minerus_own_extraction_gives(page: Image.Image, script: ScriptedVlm) -> None:
    async def predict(request: VlmRequest) -> str:
        return answers(script, request)

    theirs = asyncio.run(mineru_vlm.mineru_client(predict).aio_two_step_extract(page))
    blocks, named = mineru_vlm.parse_layout(answers(script, mineru_vlm.layout_request(page)))
    assert named == len(blocks)
    for request in mineru_vlm.block_requests(page, blocks):
        assert request.block is not None
        blocks[request.block]["content"] = answers(script, request)
    assert mineru_vlm.finish(blocks) == list(theirs)
    assert len(blocks) == len(REPORT.blocks)


def test_the_layout_is_asked_for_as_the_model_was_trained(page: Image.Image) -> None:
    request = mineru_vlm.layout_request(page)
    assert (request.image.size, request.prompt) == ((1036, 1036), "\nLayout Detection:")
    assert request.sampling["temperature"] == 0
    assert request.sampling["vllm_xargs"] == {"no_repeat_ngram_size": 100}
    assert (request.sampling["presence_penalty"], request.sampling["frequency_penalty"]) == (0.0, 0.0)


def test_each_kind_of_block_is_asked_for_in_its_own_words(page: Image.Image, script: ScriptedVlm) -> None:
    blocks, _ = mineru_vlm.parse_layout(answers(script, mineru_vlm.layout_request(page)))
    requests = {blocks[r.block]["type"]: r for r in mineru_vlm.block_requests(page, blocks) if r.block is not None}
    assert "image" not in requests
    words = {kind: request.prompt.strip() for kind, request in requests.items()}
    assert words["table"] == "Table Recognition:"
    assert words["equation"] == "Formula Recognition:"
    assert words["text"] == words["title"] == "Text Recognition:"
    assert requests["table"].sampling["frequency_penalty"] == 0.005
    assert requests["text"].sampling["frequency_penalty"] == 0.05


def test_finished_blocks_make_a_page_that_mineru_takes(page: Image.Image, script: ScriptedVlm) -> None:
    blocks, _ = mineru_vlm.parse_layout(answers(script, mineru_vlm.layout_request(page)))
    for request in mineru_vlm.block_requests(page, blocks):
        assert request.block is not None
        blocks[request.block]["content"] = answers(script, request)
    made = mineru_vlm.page_blocks(mineru_vlm.finish(blocks))
    mineru.attach_pictures(made, page)
    mineru.normalise(made)
    by_type = {block["type"]: block for block in made}
    assert grid(by_type["table"]["content"]) == [list(row) for row in ROWS]
    assert by_type["equation"]["content"] == LATEX
    assert "paragraph_title" in by_type and "caption" in by_type
    document = mineru.build_document(
        [PageModel(made, 595.0, 842.0)], pages=[0], page_count=1, ocr=True, properties=None
    )
    assert "Mills of the valley" in mineru.markdown(document)


def test_every_type_of_block_reaches_the_markdown() -> None:
    from mineru_vl_utils.structs import BLOCK_TYPES

    kinds = sorted(BLOCK_TYPES - mineru_vlm.CONTAINERS - mineru_vlm.VISUALS - {"unknown", "list_item"})
    answers = {"table": "<fcel>cell table<nl>", "equation": "x_{equation}"}
    boxes = [f"100 {20 + 30 * n:03d} 900 {45 + 30 * n:03d}" for n in range(len(kinds))]
    layout = "".join(
        f"<|box_start|>{box}<|box_end|><|ref_start|>{kind}<|ref_end|><|rotate_up|>"
        for box, kind in zip(boxes, kinds, strict=True)
    )
    blocks, _ = mineru_vlm.parse_layout(layout)
    assert [block["type"] for block in blocks] == kinds
    for block in blocks:
        block["content"] = answers.get(block["type"], f"said by {block['type']}")
    made = mineru_vlm.page_blocks(mineru_vlm.finish(blocks))
    mineru.attach_pictures(made, Image.new("RGB", (800, 1000), "white"))
    mineru.normalise(made)
    document = mineru.build_document(
        [PageModel(made, 595.0, 842.0)], pages=[0], page_count=1, ocr=False, properties=None
    )
    markdown = mineru.markdown(document).replace("\\_", "_")
    furniture = {"header", "footer", "page_number", "aside_text", "page_footnote"}
    for kind in set(kinds) - furniture:
        assert answers.get(kind, f"said by {kind}").replace("<fcel>", "").replace("<nl>", "") in markdown, kind


def test_formulas_of_several_lines_become_one() -> None:
    boxes = {"equation_block": "100 100 900 300", "equation": "100 100 900 190", "equation ": "100 200 900 300"}
    layout = "".join(
        f"<|box_start|>{box}<|box_end|><|ref_start|>{kind.strip()}<|ref_end|><|rotate_up|>"
        for kind, box in boxes.items()
    )
    blocks, _ = mineru_vlm.parse_layout(layout)
    blocks[1]["content"], blocks[2]["content"] = "x", "y"
    (made,) = mineru_vlm.page_blocks(mineru_vlm.finish(blocks))
    assert made["type"] == "equation" and "x" in made["content"] and "y" in made["content"]
