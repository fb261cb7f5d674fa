from __future__ import annotations

from pathlib import Path

import pypdfium2

from bench.parse import repeat_pages
from samples import generate


def test_pages_are_repeated_in_their_order(tmp_path: Path) -> None:
    report = generate(tmp_path)[0]
    target = tmp_path / "long.pdf"
    repeat_pages(report, 10, target)
    with pypdfium2.PdfDocument(report) as short, pypdfium2.PdfDocument(target) as long:
        texts = [page.get_textpage().get_text_range() for page in short]
        assert [page.get_textpage().get_text_range() for page in long] == (texts * 3)[:10]


def test_fewer_pages_than_the_file_has_are_its_first(tmp_path: Path) -> None:
    report = generate(tmp_path)[0]
    repeat_pages(report, 2, tmp_path / "short.pdf")
    with pypdfium2.PdfDocument(tmp_path / "short.pdf") as document:
        assert len(document) == 2
