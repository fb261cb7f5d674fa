"""Assemble: finished pages into the document's files, which go to the artifact store, the manifest last."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from pipeline.document import SourceDocument
from pipeline.files import typed_write_errors
from pipeline.manifest import Manifest, Status
from pipeline.output import OutputFolder
from pipeline.page_model import Route
from pipeline.page_store import PageRecord, PageStore
from pipeline.steps import assemble_document
from workers.store import Claim, JobKind, PageStatus
from workers.tasks.context import WorkContext, opened_source, page_key


def assemble(context: WorkContext, claim: Claim, cancelled: threading.Event) -> None:
    """Put the job's pages together and report the job done, partial or failed, as its pages went.

    Raises:
        Cancelled, LeaseLost, DiskFull and other errors of the pipeline and the stores.
    """
    source = opened_source(context, claim)
    with context.folder(claim) as scratch:
        folder = OutputFolder(scratch / "document")
        records = _collect(context, claim, PageStore(folder.store))
        assemble_document(folder.path, source, claim.pages, context.processes[JobKind.ASSEMBLE], cancelled)
        _manifest(context, claim, source, records).write(folder.manifest)
        _upload(context, claim, folder)
    context.store.assembled(claim)


def _collect(context: WorkContext, claim: Claim, store: PageStore) -> tuple[PageRecord, ...]:
    """The finished pages and their pictures, brought into a local page store; records of all pages asked for."""
    with typed_write_errors(store.folder):
        for name in ("pages", "images"):
            (store.folder / name).mkdir(parents=True)
    prefix = f"jobs/{claim.job_key}/images/"
    for picture in context.artifacts.list(prefix):
        _bring(context.artifacts.fetch(picture.key), store.folder / "images" / picture.key.removeprefix(prefix))
    records = []
    for page in context.store.job_pages(claim.job_key):
        if page.state is PageStatus.DONE:
            file = store.folder / "pages" / f"{page.index + 1:05d}.json"
            _bring(context.artifacts.fetch(page_key(claim.job_key, page.index)), file)
        route = Route(page.route) if page.route else None
        records.append(
            PageRecord(page.index, route, page.why, page.seconds, page.warnings, page.error_code, page.error)
        )
    return tuple(records)


def _bring(source: Path, destination: Path) -> None:
    with typed_write_errors(destination):
        try:
            os.link(source, destination)
        except OSError:
            shutil.copyfile(source, destination)


def _manifest(context: WorkContext, claim: Claim, source: SourceDocument, records: tuple[PageRecord, ...]) -> Manifest:
    good = sum(record.ok for record in records)
    whole = Status.DONE if good == len(records) else Status.PARTIAL
    return Manifest(
        status=whole if good else Status.FAILED,
        job=claim.job,
        input={
            "name": claim.name,
            "sha256": source.sha256,
            "size_bytes": source.size_bytes,
            "kind": str(source.kind),
            "page_count": source.page_count,
        },
        pages=records,
        seconds=max(0.0, context.store.now() - claim.job_started_at),
    )


def _upload(context: WorkContext, claim: Claim, folder: OutputFolder) -> None:
    result = f"jobs/{claim.job_key}/result"
    pictures = [(f"{result}/images/{picture.name}", picture) for picture in sorted(folder.images.iterdir())]
    context.artifacts.take_all(
        [
            *pictures,
            (f"{result}/content_list.json", folder.content_list),
            (f"{result}/middle.json", folder.middle),
            (f"{result}/document.md", folder.markdown),
            (f"{result}/manifest.json", folder.manifest),
        ]
    )
