"""The service inside one program: what goes in comes out, once, whatever happens on the way."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.files import typed_write_errors
from pipeline.options import ParseOptions
from samples.report import write_report
from samples.scan import write_letter
from tests.documents import pdf_with_a_broken_page, text_pdf
from tests.workers.servers import wait_for
from tests.workers.service import Service, manifest
from workers.artifacts import artifact_store
from workers.artifacts.folder import FolderStore
from workers.runtime import EmbeddedRuntime
from workers.store import DocumentState, JobKind
from workers.store.types import FINISHED

Make = Callable[..., Service]


@pytest.fixture
def running(service: Service) -> Iterator[Service]:
    """A service that works, with one page process."""
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=service.artifacts):
        yield service
    assert service.page_processes() == []


def test_documents_of_every_kind_end_with_the_same_result_as_without_a_service(
    running: Service, tmp_path: Path, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    write_report(tmp_path / "report.pdf")
    write_letter(tmp_path / "letter.png")
    report, letter = running.submit(tmp_path / "report.pdf"), running.submit(tmp_path / "letter.png")
    texts = {pages: running.submit(path) for pages, path in pdfs.items() if pages < 10}
    ends = running.wait(report, letter, *texts.values(), seconds=240)
    assert {end.state for end in ends} == {DocumentState.DONE}
    for pages, document in texts.items():
        assert running.result(document) == expected[pages]
    assert b"How a Page Becomes Text" in running.result(report)
    assert b"thank you for your question" in running.result(letter)
    whole = manifest(running, report)
    assert (whole["status"], whole["input"]["name"], len(whole["pages"])) == ("done", "report.pdf", 4)
    assert json.loads(running.result(report, "middle.json"))
    for picture in json.loads(running.result(report, "content_list.json")):
        if picture.get("img_path"):
            assert running.artifacts.size(f"jobs/{report.job_key}/result/{picture['img_path']}") > 0
    running.assert_clean([report, letter, *texts.values()], workers_stopped=False)


def test_bad_input_fails_with_its_code_and_bad_pages_alone(running: Service, tmp_path: Path) -> None:
    (tmp_path / "empty.pdf").write_bytes(b"")
    (tmp_path / "word.pdf").write_bytes(b"PK not a PDF")
    locked = text_pdf(tmp_path / "locked.pdf", password="open sesame")
    documents = {
        "empty_file": running.submit(tmp_path / "empty.pdf"),
        "not_a_pdf": running.submit(tmp_path / "word.pdf"),
        "encrypted": running.submit(locked),
        "bad_page_range": running.submit(text_pdf(tmp_path / "short.pdf"), ParseOptions(pages="5-")),
    }
    opened = running.submit(locked, ParseOptions(password="open sesame"))
    broken = running.submit(pdf_with_a_broken_page(tmp_path / "broken.pdf"))
    running.wait(*documents.values(), opened, broken)
    for code, document in documents.items():
        end = running.store.document(document.id)
        assert (end.state, end.error_code) == (DocumentState.FAILED, code)
    assert running.state(opened) is DocumentState.DONE
    assert running.state(broken) is DocumentState.PARTIAL
    assert [page.state for page in running.store.pages(broken.id)] == ["done", "failed", "done"]
    assert b"between trouble and peace" in running.result(broken)


def test_pages_can_be_read_before_the_document_is_done(running: Service, pdfs: dict[int, Path]) -> None:
    book = running.submit(pdfs[40])
    wait_for(lambda: running.store.document(book.id).pages_done > 0, "a page is done", 60)
    assert running.artifacts.exists(f"jobs/{book.job_key}/pages/00001.json")
    assert running.state(book) not in FINISHED


@pytest.mark.parametrize("when", ["queued", "preparing", "running", "assembling"])
def test_a_cancelled_document_stops_and_can_be_taken_up_again(
    make_service: Make, pdfs: dict[int, Path], expected: dict[int, bytes], when: str
) -> None:
    service = make_service()
    gate = Gate(service.settings.artifacts(), when)
    document = service.submit(pdfs[9])
    if when == "queued":
        assert service.store.cancel(document.id).state is DocumentState.CANCELLED
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=gate):
        if when != "queued":
            assert gate.reached.wait(60)
            assert service.store.cancel(document.id).state is DocumentState.CANCELLING
            gate.open.set()
            wait_for(lambda: service.state(document) is DocumentState.CANCELLED, "it is cancelled", 10)
        gate.open.set()
        assert service.store.counts().leased == {}
        service.store.retry(document.id)
        (end,) = service.wait(document)
        assert end.state is DocumentState.DONE
        assert service.result(document) == expected[9]
        assert set(service.page_attempts(document)) == {1}


class Gate(FolderStore):
    """A folder store that stops the work of one state until it is let on."""

    def __init__(self, url: str, state: str) -> None:
        super().__init__(Path(url))
        self._prefix = {"preparing": "inputs/", "running": "jobs/", "assembling": "jobs/"}.get(state, "none")
        self._fragment = {"running": "/pages/00003.json", "assembling": "/result/document.md"}.get(state, "")
        self.reached, self.open = threading.Event(), threading.Event()

    def fetch(self, key: str) -> Path:
        self._pass(key)
        return super().fetch(key)

    def take_all(self, files: Any) -> None:
        for key, _ in files:
            self._pass(key)
        super().take_all(files)

    def _pass(self, key: str) -> None:
        if key.startswith(self._prefix) and key.endswith(self._fragment):
            self.reached.set()
            assert self.open.wait(60)


def test_a_hanging_page_stops_within_two_seconds_of_the_cancel(make_service: Make, pdfs: dict[int, Path]) -> None:
    service = make_service()
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=service.artifacts):
        book = service.submit(pdfs[40])
        wait_for(lambda: service.store.document(book.id).pages_done > 0, "a page is done", 60)
        service.store.cancel(book.id)
        wait_for(lambda: service.state(book) is DocumentState.CANCELLED, "the cancel is done", 5)
    service.assert_clean([book])


def test_a_full_disk_is_waited_out(
    make_service: Make, pdfs: dict[int, Path], expected: dict[int, bytes], tmp_path: Path
) -> None:
    service = make_service()
    full = FullDisk(Path(service.settings.artifacts()), refusals=4)
    document = service.submit(pdfs[3])
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=full):
        (end,) = service.wait(document)
    assert end.state is DocumentState.DONE and full.refusals == 0
    assert service.result(document) == expected[3]
    service.assert_clean([document])


def test_a_disk_that_stays_full_fails_the_document_with_that_reason(make_service: Make, pdfs: dict[int, Path]) -> None:
    service = make_service(max_attempts=3)
    full = FullDisk(Path(service.settings.artifacts()), refusals=1_000_000)
    document = service.submit(pdfs[2])
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=full):
        (end,) = service.wait(document)
    assert (end.state, end.error_code) == (DocumentState.FAILED, "disk_full")
    service.assert_clean([document])


class FullDisk(FolderStore):
    """A folder on a disk that has no room for the next writes."""

    def __init__(self, root: Path, refusals: int) -> None:
        super().__init__(root)
        self.refusals = refusals

    def take_all(self, files: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            with typed_write_errors(self.root):
                raise OSError(errno.ENOSPC, "No space left on device")
        super().take_all(files)


def test_two_services_on_one_store_share_the_work_and_do_nothing_twice(
    make_service: Make, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    first, second = make_service(), make_service()
    documents = [first.submit(pdfs[pages], ParseOptions(force=True)) for pages in (3, 2, 9, 1, 3, 2)]
    with (
        EmbeddedRuntime(first.settings, 1, store=first.store, artifacts=first.artifacts),
        EmbeddedRuntime(second.settings, 1, store=second.store, artifacts=second.artifacts),
    ):
        first.wait(*documents)
    assert first.result(documents[2]) == expected[9]
    first.assert_clean(documents)


def test_every_message_twice_does_the_work_once(
    make_service: Make, pdfs: dict[int, Path], expected: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery import Celery

    send = Celery.send_task

    def twice(self: Celery, *args: Any, **options: Any) -> Any:
        send(self, *args, **options)
        return send(self, *args, **options)

    monkeypatch.setattr(Celery, "send_task", twice)
    service = make_service()
    documents = [service.submit(pdfs[pages]) for pages in (9, 2, 1)]
    with EmbeddedRuntime(service.settings, 2, store=service.store, artifacts=service.artifacts):
        service.wait(*documents)
    assert service.result(documents[0]) == expected[9]
    service.assert_clean(documents)


def test_no_message_at_all_is_made_up_for(
    make_service: Make, pdfs: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service()
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=service.artifacts):
        other = make_service()  # another program's store: nobody is told of what it accepts
        document = other.submit(pdfs[1])
        other.wait(document)


def test_a_restart_parses_no_finished_page_again(
    make_service: Make, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    service = make_service(drain_seconds=0.0)
    book = service.submit(pdfs[40])
    for restart in range(1, 4):
        with EmbeddedRuntime(
            service.settings, 1, store=service.store, artifacts=artifact_store(service.settings.artifacts())
        ):
            wait_for(
                lambda least=4 * restart: service.store.document(book.id).pages_done >= least, "pages are done", 90
            )
        assert not any(service.store.counts().leased.values()), "a stopping worker hands back what it holds"
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=service.artifacts):
        service.wait(book)
    assert set(service.page_attempts(book)) == {1}
    assert service.result(book) == expected[40]
    service.assert_clean([book])


def test_work_of_every_kind_may_be_done_by_different_workers(make_service: Make, pdfs: dict[int, Path]) -> None:
    from workers.runtime import Worker

    service = make_service()
    document = service.submit(pdfs[2])
    for kind, state in ((JobKind.PREPARE, "running"), (JobKind.PAGE, "assembling"), (JobKind.ASSEMBLE, "done")):
        with Worker(service.settings, queues=[kind], concurrency=1, store=service.store, artifacts=service.artifacts):
            wait_for(lambda wanted=state: service.state(document) == wanted, f"it is {state}", 60)
