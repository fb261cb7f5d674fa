"""Documents of the route vlm in a service: a queue of their own, the engine's absence survived, cancel passed on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.options import ParseOptions
from pipeline.page_model import Route
from pipeline.settings import settings
from tests.documents import drawn_pdf, text_pdf
from tests.pipeline.routes.scripted_vlm import How, Page, ScriptedVlm
from tests.pipeline.routes.vlm_pages import BLOCKS, LATEX, REPORT, report, scan_of
from tests.workers.servers import wait_for
from tests.workers.service import Service, manifest
from workers.runtime import EmbeddedRuntime
from workers.store import DocumentState

VLM = ParseOptions(route=Route.VLM)


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scan")
    return scan_of(drawn_pdf(folder / "report.pdf", [report]), folder / "scan.pdf")


@pytest.fixture
def running(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """One page process for each kind of page. The engine is configured by each test."""
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=service.artifacts):
        yield service
    assert service.page_processes() == []
    monkeypatch.undo()
    settings.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, script: ScriptedVlm) -> None:
    monkeypatch.setenv("PAGEMILL_ENGINE_URL", script.url)
    settings.cache_clear()


def test_pages_that_wait_for_the_engine_do_not_hold_up_the_others(
    running: Service, scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Page(BLOCKS, how=How.SLOW)
    with ScriptedVlm(scan, [slow]) as script:
        use(monkeypatch, script)
        waits = running.submit(scan, VLM)
        script.wait_for(1, 60)
        prose = running.submit(text_pdf(tmp_path / "prose.pdf", 2), ParseOptions(route=Route.LAYOUT))
        (ended,) = running.wait(prose, seconds=60)
        assert ended.state is DocumentState.DONE
        assert running.state(waits) is DocumentState.RUNNING
        running.store.cancel(waits.id)
        at = time.monotonic()
        (asked,) = script.asked
        assert asked.withdrawn.wait(5), "the question was not withdrawn"
        assert time.monotonic() - at < 2
        running.wait(waits)
    assert running.state(waits) is DocumentState.CANCELLED
    running.assert_clean([prose, waits], workers_stopped=False)


def test_a_document_ends_with_what_the_engine_read(
    running: Service, scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedVlm(scan, [REPORT]) as script:
        use(monkeypatch, script)
        document = running.submit(scan, VLM)
        (ended,) = running.wait(document)
    assert ended.state is DocumentState.DONE
    assert LATEX.encode() in running.result(document)
    assert manifest(running, document)["pages"][0]["route"] == "vlm"


def test_an_engine_that_comes_late_is_waited_for(running: Service, scan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Page(tuple(replace(block) for block in BLOCKS))
    with ScriptedVlm(scan, [refusing], token="secret") as script:
        use(monkeypatch, script)
        monkeypatch.setenv("PAGEMILL_ENGINE_MODEL", "named")
        settings.cache_clear()
        document = running.submit(scan, VLM)
        wait_for(lambda: script.refused > 0, "it was refused", 60)
        assert running.state(document) is DocumentState.RUNNING
        script.token = None
        (ended,) = running.wait(document)
    assert ended.state is DocumentState.DONE
    assert manifest(running, document)["job"]["engine"] == {"model": "named"}


def test_an_engine_that_does_not_come_fails_the_pages_with_its_code(
    service: Service, scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedVlm(scan, [REPORT]) as script:
        pass
    use(monkeypatch, script)
    impatient = service.settings.model_copy(update={"max_attempts": 2})
    with EmbeddedRuntime(impatient, 1, store=service.store, artifacts=service.artifacts):
        document = service.submit(scan, VLM)
        (ended,) = service.wait(document)
    assert (ended.state, ended.error_code) == (DocumentState.FAILED, "engine_unavailable")
    assert [page.error_code for page in service.store.pages(document.id)] == ["engine_unavailable"]
    settings.cache_clear()
