"""How pages are cut into windows, and that a lost window costs only what must be lost."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.document import SourceDocument, SourceKind
from pipeline.errors import Cancelled, OutputNotWritable
from pipeline.options import ParseOptions
from pipeline.page_store import PageRecord, PageStore
from pipeline.processes import PageProcesses
from pipeline.windows import plan_windows, recognise_pages
from tests.documents import text_pdf


@given(st.sets(st.integers(0, 500)).map(sorted), st.integers(1, 16))
def test_windows_hold_every_page_once_in_order_and_the_first_page_goes_alone(pages: list[int], size: int) -> None:
    windows = plan_windows(pages, size)
    assert [page for window in windows for page in window] == pages
    assert all(0 < len(window) <= size for window in windows)
    assert not windows or len(windows[0]) == 1


def source(path: Path, pages: int) -> SourceDocument:
    return SourceDocument(str(path), SourceKind.PDF, "0" * 64, path.stat().st_size, pages)


def recognise(own: PageProcesses, tmp_path: Path, pages: int, **changes: object) -> list[PageRecord]:
    store = PageStore(tmp_path / "store")
    store.prepare({})
    document = source(text_pdf(tmp_path / "a.pdf", pages), pages)
    arguments = {
        "window_pages": 4,
        "page_seconds": 60.0,
        "threads": 1,
        "cancelled": threading.Event(),
        **changes,
    }
    return list(
        recognise_pages(own, document, range(pages), ParseOptions(), store.folder, **arguments)  # type: ignore[arg-type]
    )


def test_every_page_is_reported_once(tmp_path: Path) -> None:
    with PageProcesses(2) as own:
        records = recognise(own, tmp_path, 11)
    assert sorted(record.index for record in records) == list(range(11))
    assert all(record.ok for record in records)


def test_a_process_that_is_killed_again_and_again_fails_its_page_in_the_end(tmp_path: Path) -> None:
    stop = threading.Event()

    def kill_every_child(own: PageProcesses) -> None:
        killed: set[int] = set()
        while not stop.wait(0.01):
            pid = own._processes[0].pid
            if pid is not None and pid not in killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)

    with PageProcesses(1) as own:
        killer = threading.Thread(target=kill_every_child, args=(own,))
        killer.start()
        try:
            records = recognise(own, tmp_path, 2)
        finally:
            stop.set()
            killer.join()
    assert [record.index for record in sorted(records, key=lambda r: r.index)] == [0, 1]
    assert {record.error_code for record in records} == {"page_crashed"}


def test_cancelling_stops_between_pages(tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with PageProcesses(1) as own, pytest.raises(Cancelled):
        recognise(own, tmp_path, 3, cancelled=cancelled)


def test_what_concerns_the_whole_run_ends_it_instead_of_failing_page_after_page(tmp_path: Path) -> None:
    document = source(text_pdf(tmp_path / "a.pdf", 3), 3)
    (tmp_path / "store").write_text("a file where the store should be")
    with PageProcesses(1) as own, pytest.raises(OutputNotWritable):
        list(
            recognise_pages(
                own,
                document,
                range(3),
                ParseOptions(),
                tmp_path / "store",
                window_pages=4,
                page_seconds=60.0,
                threads=1,
                cancelled=threading.Event(),
            )
        )
