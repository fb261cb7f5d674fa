"""A real document through real workers, seen in the browser from upload to download."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from samples.report import write_report
from tests.api.service.running import Service
from tests.api.web.conftest import Watched
from tests.documents import text_pdf
from workers.runtime import EmbeddedRuntime

pytestmark = pytest.mark.timeout(300)
Open = Callable[[Service | str], Watched]
PATIENCE = 120_000
"""Milliseconds; page processes load MinerU first."""


def test_a_report_a_broken_file_and_a_long_document(service: Service, open_page: Open, tmp_path: Path) -> None:
    report, broken = tmp_path / "report.pdf", tmp_path / "broken.pdf"
    write_report(report)
    broken.write_bytes(b"this is no PDF")
    page = open_page(service).page
    with EmbeddedRuntime(service.context.settings, concurrency=1, store=service.store, artifacts=service.artifacts):
        page.locator("#files").set_input_files([str(report), str(broken)])
        card = page.locator(".documents .card", has_text="report.pdf")
        expect(card).to_have_attribute("data-state", "done", timeout=PATIENCE)
        card.locator(".open").click()
        expect(page.locator(".cell[data-state]")).to_have_count(4)
        expect(page.locator("#rendered h1")).to_have_text("How a Page Becomes Text")
        # Every piece of the text knows its block.
        assert page.locator("#rendered > *:not([data-block], :has([data-block]))").count() == 0
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#rendered table")).to_have_count(2)
        page.locator('.box[data-kind="table"]').first.hover()
        expect(page.locator("#rendered .on table")).to_have_count(1)

        failed = page.locator(".documents .card", has_text="broken.pdf")
        expect(failed).to_have_attribute("data-state", "failed", timeout=PATIENCE)
        failed.locator(".open").click()
        expect(page.locator("#viewer-error code")).to_have_text("not_a_pdf")

        page.locator("#files").set_input_files(str(text_pdf(tmp_path / "long.pdf", 400)))
        long = page.locator(".documents .card", has_text="long.pdf")
        long.locator(".open").click()
        expect(page.locator('.cell[data-state="done"]').first).to_be_visible(timeout=PATIENCE)
        page.locator("#viewer-actions").get_by_role("button", name="Cancel").click()
        expect(long).to_have_attribute("data-state", "cancelled", timeout=PATIENCE)
        assert page.locator('.cell[data-state="done"]').count() < 400
