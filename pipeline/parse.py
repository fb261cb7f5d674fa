"""The life of one document: open -> pages -> route -> recognise -> assemble -> render."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.document import SourceDocument
from pipeline.errors import PageFailed
from pipeline.events import DocumentFinished, DocumentOpened, Event, PageFinished, ParsedDocument
from pipeline.manifest import Manifest, Status, describe_input, describe_job
from pipeline.options import ParseOptions
from pipeline.output import OutputFolder, claim_folder
from pipeline.page_model import Route
from pipeline.page_range import check_selection, select_pages
from pipeline.page_store import PageRecord, PageStore
from pipeline.processes import Limits, PageProcesses
from pipeline.settings import PipelineSettings, settings
from pipeline.steps import assemble_document, damaged, model_threads, open_source
from pipeline.vlm_engine import listed_models, required_engine
from pipeline.windows import recognise_pages


def parse(
    path: Path | str,
    output: Path | str,
    options: ParseOptions | None = None,
    *,
    workers: int | None = None,
) -> ParsedDocument:
    """Parse one PDF or image into `output/<stem>/` and return when it is done.

    What an earlier run of the same file with the same options finished is not done again.

    Args:
        path: PDF, PNG, JPEG or TIFF.
        output: folder that the document's own folder is made in.
        options: see `ParseOptions`.
        workers: page processes; None takes PAGEMILL_WORKERS, or one for each CPU.

    Raises:
        PipelineError: its `code` is stable and its message says what to do. Pages that fail do not raise:
            the result's status is then `partial`, or `failed` if no page could be read.
    """
    with page_processes(workers) as processes:
        for event in stream(path, output, options, processes=processes):
            if isinstance(event, DocumentFinished):
                return event.document
    raise AssertionError("a stream ends with DocumentFinished or raises")


def page_processes(workers: int | None = None) -> PageProcesses:
    """Page processes by the settings, to share between documents. Close them, or use them in a `with`."""
    config = settings()
    size = workers or config.worker_count()
    limits = Limits(
        memory_bytes=config.page_memory_mb * 2**20,
        recycle_after=config.recycle_after_pages,
        threads=model_threads(size),
    )
    return PageProcesses(size, limits)


def stream(
    path: Path | str,
    output: Path | str,
    options: ParseOptions | None = None,
    *,
    processes: PageProcesses,
    cancelled: threading.Event | None = None,
) -> Iterator[Event]:
    """Parse one document and yield what happens as it happens; each page as soon as it is done.

    Set `cancelled` from another thread, or close the iterator, to stop it: finished pages are kept, and the
    same call goes on from there. Raises as `parse` does.
    """
    path, output = Path(path), Path(output)
    options, config = options or ParseOptions(), settings()
    cancelled = cancelled or threading.Event()
    check_selection(options.pages)
    if options.route is Route.VLM:
        engine = required_engine()
        if engine.model is None:
            # Its name is part of the job; and who is not there is found out before any work.
            listed_models(engine)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pagemill-") as scratch:
        try:
            source = open_source(path, options, Path(scratch), processes, config, cancelled)
        except PageFailed as error:
            raise damaged(error) from error
        pages = select_pages(options.pages, source.page_count)
        job = describe_job(source.sha256, options)
        with claim_folder(output, path, source.sha256) as folder:
            earlier = Manifest.read(folder.manifest)
            if earlier and earlier.job == job and earlier.status is Status.DONE and not options.force:
                PageStore(folder.store).clear()
                yield DocumentFinished(ParsedDocument(path, folder.path, folder.markdown, earlier, unchanged=True))
                return
            store = PageStore(folder.store)
            if options.force:
                store.clear()
            store.prepare(job)
            records = {record.index: record for record in store.records() if record.index in pages}
            yield DocumentOpened(path, folder.path, len(pages), len(records))
            for record in _missing_pages(processes, source, pages, records, options, folder, config, cancelled):
                records[record.index] = record
                yield PageFinished(path, record)
            manifest = Manifest(
                status=_status(records),
                job=job,
                input=describe_input(path, source),
                pages=tuple(records[index] for index in pages),
                seconds=time.monotonic() - started,
            )
            # No manifest while the files are replaced: it would vouch for a mixture of two results.
            folder.manifest.unlink(missing_ok=True)
            assemble_document(folder.path, source, pages, processes, cancelled)
            manifest.write(folder.manifest)
            if manifest.status is Status.DONE:
                store.clear()
            yield DocumentFinished(ParsedDocument(path, folder.path, folder.markdown, manifest))


def _missing_pages(
    processes: PageProcesses,
    source: SourceDocument,
    pages: tuple[int, ...],
    finished: dict[int, PageRecord],
    options: ParseOptions,
    folder: OutputFolder,
    config: PipelineSettings,
    cancelled: threading.Event,
) -> Iterator[PageRecord]:
    """Records of the pages that no earlier run has finished: those refused by preflight, then the others."""
    bad = {page.index: page for page in source.bad_pages}
    for index in pages:
        if index in bad:
            yield PageRecord(index, None, "", 0.0, error_code=bad[index].code, error=bad[index].message)
    yield from recognise_pages(
        processes,
        source,
        [index for index in pages if index not in finished and index not in bad],
        options,
        folder.store,
        window_pages=config.window_pages,
        page_seconds=config.page_seconds,
        threads=model_threads(processes.size),
        cancelled=cancelled,
    )


def _status(records: dict[int, PageRecord]) -> Status:
    good = sum(record.ok for record in records.values())
    if good == len(records):
        return Status.DONE
    return Status.PARTIAL if good else Status.FAILED
