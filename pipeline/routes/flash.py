"""The flash route: MinerU 4's flash tier on a window of pages with a sound text layer."""

from __future__ import annotations

from collections.abc import Sequence

import pypdfium2

from pipeline import mineru
from pipeline.page_model import PageModel
from pipeline.page_source import PageSource, extract_pages


def recognise(document: pypdfium2.PdfDocument, pages: Sequence[PageSource]) -> list[PageModel]:
    """Recognise the pages together: MinerU compares them to find running headers and heading levels.

    Args:
        document: that the pages belong to.
        pages: in ascending order; each with a text layer, or its page comes back without text.

    Returns:
        One page model for each page, in the order of `pages`.

    Raises:
        docvortex and pdfium errors as they come. One bad page fails the window.
    """
    if not pages:
        return []
    window = mineru.flash_blocks(extract_pages(document, [page.index for page in pages]))
    models = []
    for page, blocks in zip(pages, window, strict=True):
        if mineru.has_pictures(blocks):
            mineru.attach_pictures(blocks, page.image)
        mineru.normalise(blocks)
        width, height = page.size_pt
        models.append(PageModel(blocks, width, height))
    return models
