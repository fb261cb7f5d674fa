"""Which regions of a scan are pictures."""

from __future__ import annotations

from PIL import Image, ImageDraw

from pipeline.ocr.figures import sort_figures
from pipeline.page_model import Region, RegionKind, TextLine
from tests.pipeline.ocr.drawing import PAGE, SCALE, page
from tests.pipeline.structure.build import line

WIDTH, HEIGHT = PAGE[0] / SCALE, PAGE[1] / SCALE
SHEET = Region(RegionKind.FIGURE, (5.0, 5.0, WIDTH - 5, HEIGHT - 5), 0.8)
WIDE = [line("several words that run over much of the page", 80, 100 + 30 * n, size=16) for n in range(5)]
LABELS = [line("100", 60, 60 + 40 * n) for n in range(12)]


def boxes(image: Image.Image, lines: list[TextLine], regions: list[Region]) -> list[Region]:
    return [r for r in sort_figures(image, lines, regions, SCALE).regions if r.kind is RegionKind.FIGURE]


def test_a_sheet_of_text_is_not_a_figure() -> None:
    found = sort_figures(page(), WIDE, [SHEET], SCALE)
    assert found.regions == ()
    assert found.backdrop is None


def test_a_poster_is_a_picture_and_its_text_is_free() -> None:
    poster = Image.radial_gradient("L").resize(PAGE).convert("RGB")
    found = sort_figures(poster, WIDE, [SHEET], SCALE)
    assert found.regions == ()
    assert found.backdrop == SHEET.bbox


def test_a_chart_that_fills_the_page_stays_a_figure() -> None:
    assert boxes(page(), LABELS, [SHEET]) == [SHEET]


def test_a_drawing_that_the_layout_missed_is_found() -> None:
    image = page()
    for n in range(60):
        ImageDraw.Draw(image).ellipse((300 + 4 * n, 800 + 3 * n, 700 + 2 * n, 1200 + n), outline="black", width=3)
    (figure,) = boxes(image, [line("Short", 70, 60)], [])
    assert abs(figure.bbox[0] - 300 / SCALE) < 15
    assert abs(figure.bbox[1] - 800 / SCALE) < 15


def test_bands_from_edge_to_edge_are_decoration() -> None:
    image = page()
    ImageDraw.Draw(image).rectangle((0, 1300, PAGE[0], 1700), fill="navy")
    assert boxes(image, WIDE, []) == []


def test_a_page_of_print_has_no_figure() -> None:
    assert boxes(page(), WIDE, []) == []
