"""Everything that reaches below MinerU's and docvortex's public API, in one place.

Both are pinned exactly; `tests/pipeline/test_mineru_contract.py` fails with the name of what moved.

MinerU's public parser parses whole documents and starts render processes of its own. Page windows in our
supervised processes need the steps inside it: analyse (`flash_blocks`), crop pictures
(`attach_pictures`), normalise (`normalise`), and build the document from page models (`build_document`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from pipeline.page_model import Block, PageModel

MINERU_VERSION = "4.0.12"
DOCVORTEX_VERSION = "0.6.4"


def flash_blocks(pdf: bytes) -> list[list[Block]]:
    """MinerU's flash tier, text mode: the blocks of every page of `pdf`, without pictures.

    Raises:
        docvortex and pdfium errors as they come; the caller knows which pages are affected.
    """
    from docvortex.analyzers.native import PdfModel
    from docvortex.document.pdf import PDFDocument

    with PDFDocument(pdf) as document:
        return PdfModel().predict(document)


def attach_pictures(blocks: list[Block], image: Image.Image) -> None:
    """Give each visual block (image, chart, table, equation) its crop of the page as `image_base64`."""
    from docvortex.document.pdf.visuals import attach_visual_block_images

    attach_visual_block_images([blocks], [{"img_pil": image}])


def normalise(blocks: list[Block]) -> None:
    """MinerU's own last step on page models: inline spans, formula delimiters, line boxes."""
    from mineru.backend.analysis.pdf.normalization import _normalize_pdf_model_list

    _normalize_pdf_model_list([blocks])


def has_pictures(blocks: Sequence[Block]) -> bool:
    """Whether any block needs the page rendered for its crop."""
    from docvortex.document.pdf.constants import MODEL_JSON_VISUAL_BLOCK_TYPES

    return any(b.get("type") in MODEL_JSON_VISUAL_BLOCK_TYPES or b.get("type") == "image_block" for b in blocks)


def spans(text: str) -> list[dict[str, Any]]:
    """Plain text as MinerU's inline content."""
    return [{"type": "text", "content": text}]


def build_document(
    models: Sequence[PageModel],
    *,
    pages: Sequence[int],
    page_count: int,
    ocr: bool,
    properties: Any | None,
) -> Any:
    """Page models of any routes as one middle JSON document (docvortex.schema.MiddleJson).

    Paragraphs and tables that run on over a page break are joined here, by MinerU's own post-processing.

    Args:
        models: one for each of `pages`.
        pages: 0-based indices in the document.
        page_count: of the whole document.
        ocr: whether any page was read by OCR; recorded as MinerU records it.
        properties: from `source_properties`, or None.
    """
    from docvortex.document.pdf.layout import LAYOUT_EXTENSION
    from docvortex.postprocess.document import model_json_to_middle_json
    from docvortex.schema import DocumentMetadata, DocumentProperties, ModelJson, Producer
    from mineru.integrations.docvortex import build_metadata

    geometry = {
        "version": 1,
        "pages": [
            {"page_idx": index, "width_pt": model.width_pt, "height_pt": model.height_pt}
            for index, model in zip(pages, models, strict=True)
        ],
    }
    whole = list(pages) == list(range(page_count))
    model_json = ModelJson(
        pages=[model.blocks for model in models],
        page_index_map=[] if whole else list(pages),
        metadata=DocumentMetadata(
            file_suffix="pdf",
            producer=Producer(name="mineru", version=MINERU_VERSION),
            document=properties or DocumentProperties(),
        ),
        extensions={
            **build_metadata(effort="flash", parse_mode="ocr" if ocr else "txt"),
            LAYOUT_EXTENSION: geometry,
        },
    )
    return model_json_to_middle_json(model_json)


def source_properties(pdf: str) -> Any:
    """Title, authors, dates and the like as the PDF declares them; empty where they cannot be read."""
    from mineru.integrations.docvortex import read_source_properties

    with open(pdf, "rb") as file:
        return read_source_properties(file.read(), "pdf")


def markdown(document: Any) -> str:
    """The Markdown of a middle JSON document; pictures are links into `images/`."""
    from mineru.render import render_markdown

    return render_markdown(document)


def content_list(document: Any) -> list[dict[str, Any]]:
    """MinerU's flat content list (v1) of a middle JSON document."""
    from mineru.render import render_content_list

    return render_content_list(document)


def middle_json(document: Any) -> dict[str, Any]:
    """The document itself as JSON, pictures by path."""
    return document.to_dict(skip_defaults=True, exclude_block_fields={"image_base64"})
