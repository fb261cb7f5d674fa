"""Everything can be done without a mouse."""

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


@pytest.fixture
def page(service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path) -> Page:
    """A document of three finished pages, open at the first."""
    opened = open_page(service).page
    opened.locator("#files").set_input_files(str(text_pdf(tmp_path / "report.pdf", 3)))
    worker.open(3)
    for number in (1, 2, 3):
        worker.finish(
            f"# Chapter {number}\n\nSome words of page {number}.\n",
            [
                text_block(f"Chapter {number}", (0.1, 0.1, 0.6, 0.14), "doc_title"),
                text_block(f"Some words of page {number}.", (0.1, 0.2, 0.9, 0.3)),
            ],
        )
    worker.assemble()
    expect(opened.locator("#viewer-state")).to_have_text("Done")
    expect(opened.locator("#rendered h1")).to_have_text("Chapter 1")
    return opened


def heading(page: Page, number: int) -> None:
    expect(page.locator("#rendered h1")).to_have_text(f"Chapter {number}")


def test_arrow_keys_turn_pages(page: Page) -> None:
    page.keyboard.press("ArrowRight")
    heading(page, 2)
    page.keyboard.press("End")
    heading(page, 3)
    page.keyboard.press("ArrowRight")
    heading(page, 3)
    page.keyboard.press("ArrowLeft")
    heading(page, 2)
    page.keyboard.press("Home")
    heading(page, 1)


def test_the_page_map_is_one_stop_and_its_arrows_move_on(page: Page) -> None:
    assert page.locator('.cell[tabindex="0"]').count() == 1
    page.locator(".cell").first.focus()
    page.keyboard.press("ArrowRight")
    heading(page, 2)
    expect(page.locator(".cell").nth(1)).to_be_focused()
    expect(page.locator(".cell").nth(1)).to_have_attribute("aria-selected", "true")


def test_up_and_down_walk_through_the_blocks(page: Page) -> None:
    page.locator("#boxes").focus()
    expect(page.locator("#rendered .on")).to_have_text("Chapter 1")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#rendered .on")).to_have_text("Some words of page 1.")
    assert page.locator("#boxes").get_attribute("aria-activedescendant") == "block-1"
    page.keyboard.press("ArrowUp")
    expect(page.locator("#rendered .on")).to_have_text("Chapter 1")


def test_letters_switch_boxes_and_source(page: Page) -> None:
    page.keyboard.press("b")
    expect(page.locator("#boxes-button")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("m")
    expect(page.locator("#source")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("#help-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help-dialog")).to_be_hidden()
    expect(page.locator("#viewer")).to_be_visible()


def test_escape_closes_the_document_and_puts_the_focus_back_on_its_card(page: Page) -> None:
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page.locator(".documents .open")).to_be_focused()
    page.keyboard.press("Enter")
    heading(page, 1)


def test_letters_typed_into_a_field_are_only_letters(page: Page) -> None:
    page.locator("summary").click()
    page.locator("[name=pages]").press("b")
    page.locator("[name=pages]").press("Escape")
    expect(page.locator("#boxes-button")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#viewer")).to_be_visible()


def test_arrows_move_between_documents_of_the_list(page: Page, tmp_path: Path) -> None:
    page.locator("#files").set_input_files(str(text_pdf(tmp_path / "second.pdf")))
    expect(page.locator(".documents .card")).to_have_count(2)
    page.locator(".documents .open").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".documents .open").nth(1)).to_be_focused()


def test_tab_reaches_the_controls_in_reading_order_and_each_shows_that_it_has_the_focus(page: Page) -> None:
    page.keyboard.press("Escape")
    page.reload()
    expect(page.locator(".documents .open")).to_be_visible()
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => {
                    const it = document.activeElement;
                    const shown = [it, ...["::after"]].some((what, at) => {
                        const style = getComputedStyle(it, at ? what : null);
                        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
                    }) || it.closest(":has(#files:focus-visible)") !== null;
                    return [it.className || it.id || it.tagName, shown];
                }"""
            )
        )
    names = [name for name, _ in reached]
    assert names[0] == "skip"
    assert names.index("files") < names.index("SUMMARY") < names.index("open")
    assert all(shown for _, shown in reached), reached
