"""The flash route: a window of pages by MinerU, one page model each, in order."""

from __future__ import annotations

from pathlib import Path

import pypdfium2

from pipeline.page_source import PageSource
from pipeline.routes import flash
from tests.documents import text_pdf
from tests.pipeline.structure.build import texts


def test_the_pages_asked_for_come_back_in_order(tmp_path: Path) -> None:
    document = pypdfium2.PdfDocument(text_pdf(tmp_path / "a.pdf", pages=4))
    pages = flash.recognise(document, [PageSource(document, index) for index in (1, 3)])
    assert len(pages) == 2
    for page, number in zip(pages, (2, 4), strict=True):
        said = " ".join(texts(page.blocks))
        assert f"Chapter {number}" in said
        assert f"page {number} line 12" in said
        assert (round(page.width_pt), round(page.height_pt)) == (595, 842)


def test_no_pages_are_no_work(tmp_path: Path) -> None:
    document = pypdfium2.PdfDocument(text_pdf(tmp_path / "a.pdf"))
    assert flash.recognise(document, []) == []
