"""Parses here, with page processes of this program."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipeline import (
    DocumentFinished,
    DocumentOpened,
    PageFinished,
    ParsedDocument,
    ParseOptions,
    page_processes,
    stream,
)
from workers.ingest.types import FileOpened, FilePages, FileResult, FileState, Report, WorkItem


class LocalBackend:
    """A `Backend` over `pipeline.stream`; finished pages survive an interruption.

    Args:
        options: for every file.
        workers: page processes; None for one for each CPU.
    """

    def __init__(self, options: ParseOptions, workers: int | None = None) -> None:
        self._options = options
        self._processes = page_processes(workers)
        # One more than there are processes: while its files are moved about, another keeps them busy.
        self.slots = self._processes.size + 1

    def process(
        self, item: WorkItem, report: Report, submitted: Callable[[str], None], cancelled: threading.Event
    ) -> FileResult:
        result: FileResult | None = None
        for event in stream(item.file, item.output, self._options, processes=self._processes, cancelled=cancelled):
            if isinstance(event, DocumentOpened):
                report(FileOpened(item.path, event.pages, event.resumed))
            elif isinstance(event, PageFinished):
                report(FilePages(item.path, 1))
            elif isinstance(event, DocumentFinished):
                result = _result(event.document)
        assert result is not None, "a stream ends with DocumentFinished or raises"
        return result

    def close(self) -> None:
        self._processes.close()


def _result(document: ParsedDocument) -> FileResult:
    bad = [record for record in document.pages if not record.ok]
    return FileResult(
        state=FileState(document.status.value),
        folder=document.folder,
        pages=len(document.pages),
        pages_failed=len(bad),
        unchanged=document.unchanged,
        error_code=bad[0].error_code if bad else None,
        error=bad[0].error if bad else None,
    )
