"""Page: recognise one window of pages in a page process; each page is stored, then reported, as it is done."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path

from pipeline.errors import PageCrashed, PageFailed
from pipeline.page_store import PageRecord
from pipeline.steps import window_task
from workers.store import Claim
from workers.store.states import Problem
from workers.tasks.context import WorkContext, opened_source, page_key

log = logging.getLogger(__name__)


def recognise(context: WorkContext, claim: Claim, cancelled: threading.Event) -> None:
    """Recognise the claimed pages. A crash or a timeout costs an attempt of the pages not finished.

    Raises:
        Cancelled, LeaseLost, DiskFull and other errors of the pipeline and the stores.
    """
    if not claim.pages:
        context.store.window_ended(claim)
        return
    source = opened_source(context, claim)
    missing = set(claim.pages)
    with context.folder(claim) as folder:
        task = window_task(
            source,
            claim.pages,
            claim.options,
            folder,
            seconds=context.pipeline.page_seconds,
            threads=context.model_threads,
            markdown=True,
        )
        try:
            with contextlib.closing(context.processes[claim.kind].stream(task, cancelled)) as records:
                for record in records:
                    missing.discard(record.index)
                    _publish(context, claim, folder, record, last=not missing)
        except PageFailed as error:
            problem = Problem(error.code, error.message)
            crashed = isinstance(error, PageCrashed)
            forgiven = context.settings.crashes_forgiven
            context.store.window_ended(claim, problem, crashed=crashed, crashes_forgiven=forgiven)
        else:
            if missing:
                context.store.window_ended(claim)


def _publish(context: WorkContext, claim: Claim, folder: Path, record: PageRecord, *, last: bool) -> None:
    """Store a page and report it; with the last one of the window also that the window is through."""
    if record.ok:
        _store_page(context, claim, folder, record.index)
    context.gate.learn()
    if last:
        context.store.window_ended(claim, last=record)
    else:
        context.store.page_finished(claim, record)
    log.info("page %s", "read" if record.ok else "failed", extra=_details(claim, record))


def _details(claim: Claim, record: PageRecord) -> dict[str, object]:
    return {
        "job": claim.job_key,
        "page": record.index + 1,
        "route": record.route,
        "seconds": record.seconds,
        "error_code": record.error_code,
    }


def _store_page(context: WorkContext, claim: Claim, folder: Path, index: int) -> None:
    """Pictures and Markdown first: who finds the page finds them."""
    key = page_key(claim.job_key, index)
    pictures = sorted((folder / "images").glob(f"page-{index + 1:04d}-*"))
    files = [(f"jobs/{claim.job_key}/images/{picture.name}", picture) for picture in pictures]
    markdown = folder / "pages" / f"{index + 1:05d}.md"
    if markdown.exists():
        files.append((key.removesuffix(".json") + ".md", markdown))
    context.artifacts.take_all([*files, (key, folder / "pages" / f"{index + 1:05d}.json")])
