"""What a person sees: documents arrive, pages finish one by one, picture and text belong together."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, Route, expect

from tests.api.service.running import Service
from tests.api.web.conftest import Watched
from tests.api.web.played_worker import PlayedWorker, text_block
from tests.documents import text_pdf

Open = Callable[[Service | str], Watched]

PAGE = "# Chapter 1\n\nThe first paragraph speaks of mills and paper.\n\nThe second speaks of rivers and boats.\n"
BLOCKS = [
    text_block("running head", (0.1, 0.02, 0.5, 0.04), "header"),
    text_block("Chapter 1", (0.1, 0.08, 0.6, 0.12), "paragraph_title"),
    text_block("The first paragraph speaks of mills and paper.", (0.1, 0.15, 0.9, 0.3)),
    text_block("The second speaks of rivers and boats.", (0.1, 0.35, 0.9, 0.5)),
]


def add(page: Page, *paths: Path) -> None:
    page.locator("#files").set_input_files([str(path) for path in paths])


def card(page: Page, name: str):  # type: ignore[no-untyped-def]
    return page.locator(".documents .card", has_text=name)


def finished_pages(page: Page) -> list[int]:
    return [int(text) for text in page.locator('.cell[data-state="done"]').all_text_contents()]


def test_pages_of_a_dropped_file_appear_one_by_one(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    expect(page.locator("#empty")).to_be_visible()
    add(page, text_pdf(tmp_path / "report.pdf", 3))
    expect(card(page, "report.pdf")).to_contain_text("Queued")
    worker.open(3)
    expect(page.locator(".cell")).to_have_count(3)
    for number in (1, 2, 3):
        worker.finish(PAGE, BLOCKS)
        expect(page.locator('.cell[data-state="done"]')).to_have_count(number)
        assert finished_pages(page) == list(range(1, number + 1))
        if number < 3:
            expect(page.locator("#viewer-progress")).to_contain_text(f"{number} of 3 pages")
            # The first page is read while the others are not finished.
            expect(page.locator("#rendered h1")).to_have_text("Chapter 1")
    worker.assemble()
    expect(page.locator("#viewer-state")).to_have_text("Done")
    expect(card(page, "report.pdf")).to_contain_text("3 pages")


def test_progress_is_told_to_screen_readers(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf", 2))
    expect(page.locator("#live")).to_contain_text("report.pdf")
    worker.open(2)
    worker.finish(PAGE, BLOCKS)
    expect(page.locator("#live")).to_contain_text("1 of 2 pages")
    worker.finish(PAGE, BLOCKS)
    worker.assemble()
    expect(page.locator("#live")).to_have_text("report.pdf: Done, 2 pages")
    assert page.locator("#live").get_attribute("aria-live") == "polite"


def test_a_page_that_ended_while_the_document_was_looked_up_is_counted(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf", 2))
    worker.open(2)
    worker.finish(PAGE, BLOCKS)
    expect(page.locator("#viewer-progress")).to_contain_text("1 of 2 pages")

    def counted_before(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "pages_done": 0})

    page.route(re.compile(r"/v1/documents/doc_\w+$"), counted_before)
    page.reload()
    expect(page.locator("#viewer-progress")).to_contain_text("1 of 2 pages")


def test_the_picture_of_the_page_carries_a_box_for_each_block(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf"))
    worker.open(1)
    worker.finish(PAGE, BLOCKS)
    expect(page.locator(".box")).to_have_count(4)
    image = page.locator("#page-image")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") >= 600
    sheet = image.bounding_box()
    box = page.locator(".box").nth(3).bounding_box()
    assert sheet and box
    # Where the block is on the page, to within the air that boxes get.
    assert abs((box["x"] - sheet["x"]) / sheet["width"] - 0.1) < 0.02
    assert abs((box["y"] + box["height"] - sheet["y"]) / sheet["height"] - 0.5) < 0.02
    page.locator("#boxes-button").click()
    expect(page.locator(".box").first).to_be_hidden()


def test_pointing_at_a_box_marks_its_text_and_the_other_way_round(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf"))
    worker.open(1)
    worker.finish(PAGE, BLOCKS)
    expect(page.locator(".box")).to_have_count(4)
    page.locator(".box").nth(3).hover()
    expect(page.locator("#rendered .on")).to_have_text("The second speaks of rivers and boats.")
    page.locator("#rendered p").first.hover()
    expect(page.locator(".box.on")).to_have_attribute("data-label", "Text")
    assert page.locator(".box.on").get_attribute("id") == "block-2"
    page.locator("#rendered h1").hover()
    assert page.locator(".box.on").get_attribute("id") == "block-1"


def test_tables_lists_and_pictures_are_linked_to_their_blocks(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (40, 20), "red").save(picture, "PNG")
    table = '<table><tr><th>Year</th><th>Sales</th></tr><tr><td colspan="2">2025</td></tr></table>'
    markdown = f"- apples\n- pears\n\n{table}\n\n![](images/page-0001-3.png)\n"
    blocks = [
        text_block("• apples", (0.1, 0.1, 0.5, 0.15)),
        text_block("• pears", (0.1, 0.16, 0.5, 0.2)),
        {"type": "table", "bbox": [0.1, 0.3, 0.9, 0.5], "content": table},
        {"type": "image", "bbox": [0.1, 0.6, 0.9, 0.8], "image_path": "images/page-0001-3.png"},
    ]
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf"))
    worker.open(1)
    worker.finish(markdown, blocks, pictures={"page-0001-3.png": picture.getvalue()})
    expect(page.locator("#rendered table td")).to_have_attribute("colspan", "2")
    owners = page.locator("#rendered [data-block]").evaluate_all("all => all.map(each => each.dataset.block)")
    assert owners == ["0", "1", "2", "3"]
    expect(page.locator("#rendered img")).to_have_js_property("naturalWidth", 40)


def test_why_a_page_was_read_as_it_was_and_its_warnings_are_shown(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf"))
    worker.open(1)
    worker.finish(PAGE, BLOCKS, warnings=("Part of the page is faint.",))
    expect(page.locator("#page-facts")).to_contain_text("Route layout · sound text layer · 0.25 s")
    expect(page.locator("#page-warnings")).to_have_text("Part of the page is faint.")
    expect(page.locator('.cell[data-state="warned"]')).to_have_count(1)


def test_the_markdown_itself_can_be_seen(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf"))
    worker.open(1)
    worker.finish(PAGE, BLOCKS)
    expect(page.locator("#rendered h1")).to_be_visible()
    page.locator("#show-source").click()
    expect(page.locator("#source")).to_have_text(PAGE)
    expect(page.locator("#rendered")).to_be_hidden()


def test_results_can_be_downloaded(service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf"))
    worker.open(1)
    worker.finish(PAGE, BLOCKS)
    worker.assemble("# The whole document\n")
    for label, suffix, start in [("Download Markdown", ".md", b"# The whole"), ("ZIP", ".zip", b"PK")]:
        with page.expect_download() as download:
            page.get_by_role("button", name=label).click()
        assert download.value.suggested_filename == f"report{suffix}"
        assert Path(download.value.path()).read_bytes().startswith(start)


def test_a_failed_page_says_why_and_the_others_are_there(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf", 2))
    worker.open(2)
    worker.fail("page_timeout", "The page took longer than 120 s.")
    worker.finish(PAGE, BLOCKS)
    worker.assemble()
    expect(page.locator("#viewer-state")).to_have_text("Some pages failed")
    expect(page.locator("#text-note")).to_contain_text("The page took longer than 120 s.")
    page.locator(".cell").nth(1).click()
    expect(page.locator("#rendered h1")).to_have_text("Chapter 1")


def test_a_file_that_cannot_be_parsed_says_what_to_do_and_can_be_tried_again(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "locked.pdf", password="secret"))
    expect(card(page, "locked.pdf")).to_be_visible()
    worker.refuse("encrypted", "The file needs a password.")
    expect(page.locator("#viewer-error")).to_contain_text("The file needs a password. encrypted")
    expect(card(page, "locked.pdf")).to_contain_text("Failed · The file needs a password.")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#viewer-state")).to_have_text("Queued")
    expect(page.locator("#viewer-error")).to_be_hidden()


def test_a_document_can_be_cancelled_and_removed(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf"))
    page.locator("#viewer-actions").get_by_role("button", name="Cancel").click()
    expect(page.locator("#viewer-state")).to_have_text("Cancelled")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("button", name="Remove for good?").click()
    expect(card(page, "report.pdf")).to_have_count(0)
    expect(page.locator("#viewer")).to_be_hidden()
    assert service.store.list_documents(tenant="default").documents == ()


def test_a_refused_upload_says_why(service: Service, open_page: Open, tmp_path: Path) -> None:
    page = open_page(service).page
    page.locator("summary").click()
    page.locator("[name=pages]").fill("nonsense")
    add(page, text_pdf(tmp_path / "report.pdf"))
    expect(page.locator("#uploads .card")).to_contain_text("report.pdf")
    expect(page.locator("#uploads .notice")).to_contain_text("nonsense")
    page.get_by_role("button", name="Dismiss report.pdf").click()
    expect(page.locator("#uploads .card")).to_have_count(0)


def test_options_go_with_the_file(service: Service, open_page: Open, tmp_path: Path) -> None:
    page = open_page(service).page
    page.locator("summary").click()
    page.locator("[name=pages]").fill("2-3")
    page.locator("[name=route]").select_option("ocr")
    page.locator("[name=quality]").select_option("high")
    page.locator("[name=force]").check()
    add(page, text_pdf(tmp_path / "report.pdf", 3))
    expect(card(page, "report.pdf")).to_be_visible()
    (document,) = service.store.list_documents(tenant="default").documents
    assert (document.options.pages, document.options.route, document.options.quality) == ("2-3", "ocr", "high")
    assert document.options.force


def test_an_address_leads_back_to_the_page_that_was_read(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service).page
    add(page, text_pdf(tmp_path / "report.pdf", 2))
    worker.open(2)
    worker.finish(PAGE, BLOCKS)
    worker.finish("# Chapter 2\n", [text_block("Chapter 2", kind="doc_title")])
    expect(page.locator('.cell[data-state="done"]')).to_have_count(2)
    page.locator(".cell").nth(1).click()
    expect(page.locator("#rendered h1")).to_have_text("Chapter 2")
    page.reload()
    expect(page.locator("#rendered h1")).to_have_text("Chapter 2")


def test_progress_goes_on_where_event_streams_do_not_get_through(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    watched = open_page(service)
    page = watched.page
    page.route("**/events", lambda route: route.abort())
    add(page, text_pdf(tmp_path / "report.pdf", 2))
    worker.open(2)
    worker.finish(PAGE, BLOCKS)
    expect(page.locator('.cell[data-state="done"]')).to_have_count(1)
    worker.finish(PAGE, BLOCKS)
    worker.assemble()
    expect(page.locator("#viewer-state")).to_have_text("Done")


def test_mineru_is_named_with_a_link(service: Service, open_page: Open) -> None:
    page = open_page(service).page
    for place in (".top", ".foot"):
        link = page.locator(place).get_by_role("link", name="MinerU")
        expect(link).to_be_visible()
        assert link.get_attribute("href") == "https://github.com/opendatalab/MinerU"
