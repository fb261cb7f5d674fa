"""The ocr route: from the pixels of a page to blocks."""

from __future__ import annotations

from pathlib import Path

import pypdfium2
import pytest
from PIL import Image, ImageDraw
from rapidfuzz.distance import Levenshtein

from pipeline.models import Models
from pipeline.page_model import PageModel
from pipeline.page_source import PageSource
from pipeline.routes.ocr import recognise
from tests.pipeline.ocr.drawing import SENTENCES, font, framed_table, page, source

SENTENCE = "Docling bundles PDF document conversion to JSON and Markdown in an easy self contained package"


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(threads=1)


def text_of(result: PageModel) -> str:
    parts = []
    for block in result.blocks:
        content = block["content"]
        parts.append(content if isinstance(content, str) else "".join(s["content"] for s in content))
    return " ".join(parts)


def types(result: PageModel) -> list[str]:
    return [block["type"] for block in result.blocks]


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_a_page_is_read_whichever_way_it_lies(models: Models, turned: int) -> None:
    result = recognise(source(page(SENTENCES * 2).rotate(turned, expand=True)), models)
    assert " ".join(SENTENCES) in text_of(result)
    assert result.rotation == turned
    assert result.width_pt < result.height_pt


def test_little_text_is_turned_upright_too(models: Models) -> None:
    result = recognise(source(page(SENTENCES[:2]).rotate(180)), models)
    assert " ".join(SENTENCES[:2]) in text_of(result)


def test_a_tilted_page_is_straightened_and_says_so(models: Models) -> None:
    result = recognise(source(page(SENTENCES * 3).rotate(-3, fillcolor="white")), models)
    assert " ".join(SENTENCES) in text_of(result)
    assert any("straightened by 3" in w or "straightened by 2.9" in w for w in result.warnings)


def test_two_columns_are_read_one_after_the_other(models: Models) -> None:
    left = ("The mill stands where", "the river turns to the", "south and slows down", "before the old bridge.") * 3
    right = ("Another story is told", "about the market road", "that follows the dry", "side of the valley.") * 3
    image = page(left, size=24)
    image.paste(page(right, size=24).crop((140, 0, 700, 1754)), (680, 0))
    found = text_of(recognise(source(image), models))
    assert found.index("before the old bridge") < found.index("Another story")


def test_a_table_becomes_html_with_spans(models: Models) -> None:
    image = page(("Boxes photographed so far, by shelf and by box",), at=(150, 150))
    framed_table(
        image, [["Shelf", "Total", "<"], ["^", "Boxes", "Pages"], ["North", "12", "2310"]], (150, 300), (300, 80)
    )
    result = recognise(source(image), models)
    (table,) = [b for b in result.blocks if b["type"] == "table"]
    assert 'colspan="2"' in table["content"]
    assert "<td>12</td><td>2310</td>" in table["content"]
    assert table["image_base64"].startswith("data:image/")


def test_a_picture_keeps_its_pixels_and_the_text_around_it(models: Models) -> None:
    image = page(SENTENCES)
    image.paste(Image.effect_mandelbrot((700, 600), (-3, -2.5, 2, 2.5), 100).convert("RGB"), (250, 500))
    image.paste(page(SENTENCES, at=(150, 0)).crop((0, 0, 1240, 200)), (0, 1250))
    result = recognise(source(image), models)
    (picture,) = [b for b in result.blocks if b["type"] == "image"]
    assert picture["image_base64"].startswith("data:image/")
    assert text_of(result).count("The committee met") == 2


def test_text_on_a_full_page_picture_is_text(models: Models) -> None:
    poster = Image.effect_mandelbrot((1240, 1754), (-3, -2.5, 2, 2.5), 100).convert("RGB")
    draw = ImageDraw.Draw(poster)
    draw.rectangle((100, 1300, 1140, 1600), fill="white")
    draw.text((150, 1350), "THE POWER OF STORYTELLING", fill="black", font=font(50, bold=True))
    assert "THE POWER OF STORYTELLING" in text_of(recognise(source(poster), models))


@pytest.mark.parametrize("colour", ["white", "black"])
@pytest.mark.parametrize("size", [(1, 1), (3, 900), (800, 1000)])
def test_a_page_without_text_is_no_error(models: Models, size: tuple[int, int], colour: str) -> None:
    result = recognise(source(Image.new("RGB", size, colour)), models)
    assert set(types(result)) <= {"image"}
    if colour == "white":
        assert result.blocks == []


def test_a_huge_page_is_read_at_a_coarser_scale(models: Models) -> None:
    result = recognise(source(page(SENTENCES), dpi=15), models)
    assert " ".join(SENTENCES) in text_of(result)
    assert result.width_pt == pytest.approx(1240 / 15 * 72, rel=0.01)


def test_an_easy_page_raises_no_doubt(models: Models) -> None:
    assert recognise(source(page()), models).warnings == []


@pytest.mark.parametrize("name", ["ocr_test", "ocr_test_rotated_90", "ocr_test_rotated_180"])
def test_real_scans_are_read_each_way_up(models: Models, corpus: Path, name: str) -> None:
    document = pypdfium2.PdfDocument(corpus / "scans" / f"{name}.pdf")
    found = text_of(recognise(PageSource(document, 0), models))
    assert Levenshtein.distance(found, SENTENCE) <= 0.02 * len(SENTENCE)
