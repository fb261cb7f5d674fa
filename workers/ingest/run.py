"""One run of an ingestion: list, work, count; and again while a folder is watched."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline import ParseOptions, PipelineError, Quality, Route
from pipeline.errors import Cancelled, OutputBusy
from pipeline.files import typed_write_errors
from pipeline.folder_lock import FolderLock
from pipeline.manifest import describe_job
from workers.ingest.errors import IngestError
from workers.ingest.manifest import IngestManifest
from workers.ingest.scan import Selection, scan
from workers.ingest.types import (
    Backend,
    FileEnded,
    FileResult,
    FileState,
    IngestEvent,
    Listed,
    Report,
    SourceFile,
    Summary,
    WorkItem,
)

FOLDER = ".pagemill-ingest"
"""Below the output folder: manifest, failures, lock."""

_SETTLE_SECONDS = 2.0
"""While a folder is watched, a file that changed more recently than this may still be being written."""

_LOOK_AGAIN_SECONDS = 60.0


class Ingestion:
    """One source folder into one output folder. Use it in a `with`; one at a time for an output folder.

    Results mirror the source's folders: `a/b.pdf` becomes `OUTPUT/a/b/b.md` and so on.

    Args:
        source: the folder; None for that of the last run into the same output.
        selection, options: None for those of the last run. A password is never remembered.

    Raises:
        OutputBusy: another ingestion writes there. IngestError: there was no last run.
        OutputNotWritable, DiskFull: the output folder cannot be written.
    """

    def __init__(
        self, source: Path | None, output: Path, selection: Selection | None = None, options: ParseOptions | None = None
    ) -> None:
        self.output = output.absolute()
        folder = self.output / FOLDER
        with typed_write_errors(folder):
            lock = FolderLock.acquire(folder)
        if lock is None:
            raise OutputBusy(f"Another ingestion writes to {output}. Wait for it, or choose another folder with -o.")
        self._lock = lock
        self._unsettled = False
        try:
            self.manifest = IngestManifest(folder)
            self.source, self.selection, self.options = self._remembered(source, selection, options)
        except BaseException:
            lock.release()
            raise

    def _remembered(
        self, source: Path | None, selection: Selection | None, options: ParseOptions | None
    ) -> tuple[Path, Selection, ParseOptions]:
        last = self.manifest.setting("last") or {}
        if not last and None in (source, selection, options):
            raise IngestError(f"There is nothing to resume in {self.output}. Give the folder that holds the documents.")
        source = source.absolute() if source is not None else Path(last["source"])
        if selection is None:
            kept = last["selection"]
            selection = Selection(kept["recursive"], tuple(kept["globs"]))
        if options is None:
            kept = last["options"]
            options = ParseOptions(Route(kept["route"]), kept["pages"], quality=Quality(kept["quality"]))
        remembered = {"source": str(source), "selection": asdict(selection), "options": options.fingerprint()}
        with contextlib.suppress(UnicodeEncodeError):  # a name that is no UTF-8 has to be given each time
            self.manifest.remember("last", remembered)
        return source, selection, options

    def run(
        self,
        backend: Backend,
        report: Report,
        *,
        retry_failed: bool = False,
        changes: Iterator[bool] | None = None,
        stop: threading.Event | None = None,
    ) -> Summary:
        """List the files, get those parsed that need it, and count. One bad file never stops the others.

        Ctrl-C (KeyboardInterrupt) ends the run early: what is finished is kept, the summary counts what is left.

        Args:
            backend: gets the files parsed.
            report: told of every event, in the calling thread.
            retry_failed: try files again that failed or lack pages.
            changes: for watching, and the run ends with it: gives True when something in the folder has changed,
                False now and then when nothing has. None ends the run with the first scan.
            stop: set to end the run early from another thread.

        Raises:
            IngestError: nothing more can be parsed (no service, no manifest). The summary is lost, the work kept.
        """
        started = time.monotonic()
        stop = stop or threading.Event()
        run = self.manifest.begin_run()
        interrupted = False
        try:
            self._scan_and_work(run, backend, report, stop, retry_failed=retry_failed, settled=changes is not None)
            looked = time.monotonic()
            for changed in changes or ():
                if stop.is_set():
                    break
                # Some file systems tell of nothing, so a quiet folder is looked at too, but not all the time.
                if changed or self._unsettled or time.monotonic() - looked > _LOOK_AGAIN_SECONDS:
                    self._scan_and_work(run, backend, report, stop, retry_failed=False, settled=True)
                    looked = time.monotonic()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self.manifest.write_failures(run)
        interrupted = interrupted or stop.is_set()
        return replace(self.manifest.summary(run, time.monotonic() - started), interrupted=interrupted)

    def _scan_and_work(
        self, run: int, backend: Backend, report: Report, stop: threading.Event, *, retry_failed: bool, settled: bool
    ) -> None:
        self._unsettled = False

        def ready(file: SourceFile) -> bool:
            fresh = settled and time.time() - file.mtime_ns / 1e9 < _SETTLE_SECONDS
            self._unsettled |= fresh
            return not fresh

        found = self.manifest.list_files(
            run,
            scan(self.source, self.selection, self.output),
            json.dumps({"source": str(self.source), **describe_job("", self.options)}, sort_keys=True),
            retry_failed=retry_failed,
            force=self.options.force,
            has_result=lambda folder: (folder / "manifest.json").is_file(),
            ready=ready,
        )
        items = [self._item(*row) for row in self.manifest.pending(run)]
        report(Listed(found, len(items)))
        _Workshop(self.manifest, backend, report, stop).work_off(items)

    def _item(self, file_id: int, path: str, document_id: str | None, attempts: int, version: str) -> WorkItem:
        parent = PurePosixPath(path).parent
        output = self.output.joinpath(*(_folder_name(part) for part in parent.parts))
        return WorkItem(file_id, path, self.source / path, output, document_id, attempts + 1, version)

    def identity(self) -> str:
        """Names this ingestion, for as long as its manifest is kept."""
        from uuid import uuid4

        identity = self.manifest.setting("identity")
        if identity is None:
            identity = uuid4().hex
            self.manifest.remember("identity", identity)
        return str(identity)

    def close(self) -> None:
        self.manifest.close()
        self._lock.release()

    def __enter__(self) -> Ingestion:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class _Workshop:
    """Works through files with the threads of a backend; events reach the reporter in the calling thread."""

    def __init__(self, manifest: IngestManifest, backend: Backend, report: Report, stop: threading.Event) -> None:
        self._manifest, self._backend, self._report, self._stop = manifest, backend, report, stop
        self._arrived: queue.SimpleQueue[IngestEvent | None] = queue.SimpleQueue()

    def work_off(self, items: list[WorkItem]) -> None:
        cancelled = _Either(self._stop)
        threads = ThreadPoolExecutor(self._backend.slots, thread_name_prefix="ingest")
        try:
            busy = self._rounds(threads, items, cancelled)
            # Equal files of equal names share a folder; whoever came second found it busy.
            for item in busy:
                if not cancelled.is_set():
                    self._rounds(threads, [replace(item, document_id=None)], cancelled, last_try=True)
        except BaseException:
            cancelled.set()
            raise
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            self._drain()

    def _rounds(
        self, threads: ThreadPoolExecutor, items: list[WorkItem], cancelled: threading.Event, *, last_try: bool = False
    ) -> list[WorkItem]:
        """Process the items; return those whose folder was busy."""
        waiting = iter(items)
        running: set[Future[WorkItem | None]] = set()
        busy: list[WorkItem] = []
        while True:
            while len(running) < 2 * self._backend.slots and (item := next(waiting, None)) is not None:
                future = threads.submit(self._process, item, cancelled, last_try)
                future.add_done_callback(lambda _: self._arrived.put(None))
                running.add(future)
            if not running:
                return busy
            self._drain(block=True)
            ended, running = wait(running, timeout=0, return_when=FIRST_COMPLETED)
            for future in ended:
                if (again := future.result()) is not None:
                    busy.append(again)
            if cancelled.is_set():
                waiting = iter(())

    def _process(self, item: WorkItem, cancelled: threading.Event, last_try: bool) -> WorkItem | None:
        try:
            if cancelled.is_set():
                return None
            result = self._backend.process(
                item, self._arrived.put, lambda document_id: self._manifest.submitted(item.id, document_id), cancelled
            )
        except Cancelled:
            return None
        except OutputBusy as error:
            if not last_try:
                return item
            result = _failed(error)
        except IngestError:
            raise
        except PipelineError as error:
            result = _failed(error)
        except Exception as error:  # noqa: BLE001 - one file's surprise must not end the others
            result = _failed(PipelineError(f"{type(error).__name__}: {error}"))
        self._manifest.ended(item.id, result)
        self._arrived.put(FileEnded(item.path, result))
        return None

    def _drain(self, *, block: bool = False) -> None:
        """Report what has arrived; with `block`, wait for something first. None only wakes the waiting one."""
        with contextlib.suppress(queue.Empty):
            event = self._arrived.get(timeout=1.0) if block else self._arrived.get_nowait()
            while True:
                if event is not None:
                    self._report(event)
                event = self._arrived.get_nowait()


class _Either(threading.Event):
    """Set by itself, or while another event is."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        return super().is_set() or self._other.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = 0.1 if deadline is None else min(0.1, deadline - time.monotonic())
            if left <= 0:
                break
            super().wait(left)
        return self.is_set()


def _failed(error: PipelineError) -> FileResult:
    return FileResult(FileState.FAILED, error_code=error.code, error=error.message, bad_input=error.bad_input)


def _folder_name(part: str) -> str:
    """A source folder's name in the output, kept apart from the files of a document's folder beside it."""
    return f"{part}_" if part == "images" or part.endswith((".md", ".json")) else part
