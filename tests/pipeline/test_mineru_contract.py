"""What `pipeline.mineru` takes from below MinerU's public API is still there and still means the same.

When a pin is raised, a failure here names the piece that moved.
"""

from __future__ import annotations

import importlib
import json
from importlib.metadata import version
from pathlib import Path

import pytest

import samples
from pipeline import mineru
from pipeline.page_model import PageModel


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contract")
    return next(path for path in samples.generate(folder) if path.name == "report.pdf")


def test_the_installed_versions_are_the_pinned_ones() -> None:
    assert version("mineru") == mineru.MINERU_VERSION
    assert version("docvortex") == mineru.DOCVORTEX_VERSION


@pytest.mark.parametrize(
    "hook",
    [
        "docvortex.analyzers.native:PdfModel.predict",
        "docvortex.document.pdf:PDFDocument",
        "docvortex.document.pdf.visuals:attach_visual_block_images",
        "docvortex.document.pdf.constants:MODEL_JSON_VISUAL_BLOCK_TYPES",
        "docvortex.document.pdf.layout:LAYOUT_EXTENSION",
        "docvortex.postprocess.document:model_json_to_middle_json",
        "docvortex.schema:ModelJson",
        "docvortex.schema:DocumentProperties",
        "mineru.backend.analysis.pdf.normalization:_normalize_pdf_model_list",
        "mineru.integrations.docvortex:build_metadata",
        "mineru.integrations.docvortex:read_source_properties",
        "mineru.render:render_markdown",
        "mineru.render:render_content_list",
    ],
)
def test_every_hook_is_where_it_was(hook: str) -> None:
    module, _, attribute = hook.partition(":")
    found = importlib.import_module(module)
    for name in attribute.split("."):
        assert hasattr(found, name), (
            f"{hook} has moved: {name} is gone. See what replaced it and adapt pipeline/mineru.py"
        )
        found = getattr(found, name)


def test_our_flash_steps_give_what_minerus_own_flash_tier_gives(report: Path, tmp_path: Path) -> None:
    from mineru.parser import MinerUParser

    theirs = MinerUParser(tier="flash", parse_mode="txt").parse(report)
    ours = mineru.flash_blocks(report.read_bytes())
    for blocks in ours:
        mineru.normalise(blocks)
    document = mineru.build_document(
        [PageModel(blocks, 595.0, 842.0) for blocks in ours],
        pages=range(len(ours)),
        page_count=len(ours),
        ocr=False,
        properties=None,
    )
    their_blocks = [[(b.type, b.bbox) for b in page.blocks] for page in theirs.middle_json.pages]
    our_blocks = [[(b.type, b.bbox) for b in page.blocks] for page in document.pages]
    assert our_blocks == their_blocks
    assert sum(map(len, our_blocks)) > 20


def test_a_document_of_our_pages_is_valid_middle_json_and_reads_back(report: Path) -> None:
    from mineru.parser.base import ParseResult

    blocks = mineru.flash_blocks(report.read_bytes())
    for page in blocks:
        mineru.normalise(page)
    pages = [PageModel(page, 595.0, 842.0) for page in blocks]
    document = mineru.build_document(pages, pages=range(4), page_count=4, ocr=True, properties=None)
    value = json.loads(json.dumps(mineru.middle_json(document)))
    again = ParseResult.from_dict(value)
    assert again.markdown() == mineru.markdown(document)
    assert {item["page_idx"] for item in mineru.content_list(document)} == {0, 1, 2, 3}


def test_pictures_are_cut_from_the_page_as_data_uris() -> None:
    from PIL import Image

    page = Image.new("RGB", (200, 100), "white")
    page.paste("red", (100, 0, 200, 100))
    blocks = [{"type": "image", "bbox": [0.5, 0.0, 1.0, 1.0], "content": ""}]
    mineru.attach_pictures(blocks, page)
    assert blocks[0]["image_base64"].startswith("data:image/jpeg;base64,")


def test_properties_of_a_pdf_are_read(report: Path) -> None:
    assert mineru.source_properties(str(report)).page_count == 4
