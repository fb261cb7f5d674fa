"""The samples are what `make demo` shows and what tests parse: they must be whole and always the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from samples import generate, words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("samples") / "made" / "by" / "generate"
    generate(target)
    return target


@pytest.fixture
def report(folder: Path) -> Iterator[pypdfium2.PdfDocument]:
    with pypdfium2.PdfDocument(folder / "report.pdf") as document:
        yield document


def test_a_second_run_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = generate(tmp_path)
    assert [path.name for path in again] == ["report.pdf", "scan.pdf", "letter.png"]
    for path in again:
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


def test_the_report_is_born_digital_and_numbers_its_pages(report: pypdfium2.PdfDocument) -> None:
    texts = [page.get_textpage().get_text_range() for page in report]
    assert len(texts) == 4
    for number, text in enumerate(texts, start=1):
        assert words.RUNNING_HEADER in text
        assert str(number) in text.split()
    everything = " ".join(" ".join(texts).split())
    for cell in (*words.RULED_TABLE[-1], *words.UNRULED_TABLE[-1], words.TITLE, words.FIGURE_CAPTION):
        assert cell in everything


def test_the_report_sets_its_second_page_in_two_columns(report: pypdfium2.PdfDocument) -> None:
    page = report[1]
    text = page.get_textpage()
    middle = page.get_width() / 2
    sides = set()
    for heading, *_ in words.COLUMNS:
        left, *_ = text.get_charbox(text.search(heading).get_next()[0])
        sides.add(left < middle)
    assert sides == {True, False}


def test_the_scan_has_pictures_and_no_text(folder: Path) -> None:
    with pypdfium2.PdfDocument(folder / "scan.pdf") as document:
        sizes = [page.get_size() for page in document]
        assert [page.get_textpage().count_chars() for page in document] == [0, 0, 0]
    assert [width < height for width, height in sizes] == [True, True, False]


def test_the_letter_states_its_resolution(folder: Path) -> None:
    with Image.open(folder / "letter.png") as letter:
        width, height = letter.size
        horizontal, _ = letter.info["dpi"]
    assert width / horizontal * 25.4 == pytest.approx(210, abs=1)
    assert height / horizontal * 25.4 == pytest.approx(297, abs=1)
