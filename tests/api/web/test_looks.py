"""Dark and light, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.api.service.running import Service
from tests.api.web.conftest import Watched
from tests.api.web.played_worker import PlayedWorker, text_block
from tests.documents import text_pdf

Open = Callable[[Service | str], Watched]

WIDE_TABLE = "<table><tr>" + "<td>a column of figures</td>" * 20 + "</tr></table>"


@pytest.fixture
def page(service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path) -> Page:
    opened = open_page(service).page
    opened.locator("#files").set_input_files(str(text_pdf(tmp_path / f"{'long-name-' * 12}.pdf", 30)))
    worker.open(30)
    worker.finish(f"# Chapter 1\n\nSome words.\n\n{WIDE_TABLE}\n", [text_block("Chapter 1", kind="doc_title")])
    expect(opened.locator("#rendered table")).to_be_visible()
    return opened


def lightness(page: Page, selector: str, what: str) -> float:
    """0 for black, 1 for white."""
    red, green, blue = page.locator(selector).evaluate(
        """(element, what) => {
            const canvas = new OffscreenCanvas(1, 1).getContext("2d");
            canvas.fillStyle = getComputedStyle(element)[what];
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        what,
    )
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


def test_it_is_dark_where_the_system_is(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    assert lightness(page, "body", "backgroundColor") > 0.8
    assert lightness(page, "#text-pane", "color") < 0.3
    page.emulate_media(color_scheme="dark")
    assert lightness(page, "body", "backgroundColor") < 0.2
    assert lightness(page, "#text-pane", "color") > 0.7


def test_the_choice_of_theme_outlives_a_reload(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.locator("#theme-button").click()
    page.locator("#theme-button").click()
    expect(page.locator("#theme-button")).to_have_attribute("aria-label", "Theme: dark")
    assert lightness(page, "body", "backgroundColor") < 0.2
    page.reload()
    expect(page.locator("#theme-name")).to_have_text("Dark")
    assert lightness(page, "body", "backgroundColor") < 0.2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_against_what_is_behind_it(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for selector, behind in [
        ("#page-facts", "body"),
        ("#rendered h1", "#text-pane"),
        (".foot", "body"),
        (".credit", ".top"),
    ]:
        text, ground = (relative(lightness(page, *what)) for what in ((selector, "color"), (behind, "backgroundColor")))
        contrast = (max(text, ground) + 0.05) / (min(text, ground) + 0.05)
        assert contrast >= 4.5, (selector, contrast)


def relative(value: float) -> float:
    """Relative luminance (WCAG) of a grey of this lightness; near enough for colours that are nearly grey."""
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


@pytest.mark.parametrize("width", [360, 768, 1360])
def test_nothing_is_wider_than_the_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for address in ("#/", None):
        if address:
            page.locator("#close").dispatch_event("click")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_the_document_takes_the_screen_and_back_leads_to_the_list(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.locator(".side")).to_be_hidden()
    expect(page.locator("#image-pane")).to_be_hidden()
    page.locator("#show-image").click()
    expect(page.locator("#image-pane")).to_be_visible()
    expect(page.locator("#text-pane")).to_be_hidden()
    # A tap on a box leads to its text.
    page.locator(".box").first.click()
    expect(page.locator("#text-pane")).to_be_visible()
    expect(page.locator("#rendered .on")).to_have_text("Chapter 1")
    page.get_by_role("button", name="Back to the documents").click()
    expect(page.locator(".side")).to_be_visible()
    expect(page.locator("#viewer")).to_be_hidden()
