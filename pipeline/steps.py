"""The steps of one document that run in page processes: open it, recognise a window of pages, put it together.

`pipeline.parse` strings them together in one program; workers run each one where and when they get it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from pipeline.assemble import AssembleRequest
from pipeline.document import SourceDocument, SourceKind
from pipeline.errors import Damaged, PageFailed, PipelineError
from pipeline.open import OpenRequest
from pipeline.options import ParseOptions
from pipeline.page_model import Route
from pipeline.processes import PageProcesses, Task
from pipeline.recognise import WindowRequest
from pipeline.settings import PipelineSettings
from pipeline.vlm_engine import configured_engine

_OPEN_SECONDS = 60.0
"""Deadline of preflight. It reads the file once and looks at each page's size, which takes well under a second."""

_ASSEMBLE_SECONDS_PER_PAGE = 1.0
"""Deadline of assembly for each page, about a hundred times what it takes."""


def open_source(
    path: Path,
    options: ParseOptions,
    scratch: Path,
    processes: PageProcesses,
    config: PipelineSettings,
    cancelled: threading.Event | None = None,
) -> SourceDocument:
    """Preflight in a page process.

    Args:
        scratch: a folder for the PDF that is made of an image.

    Raises:
        Cancelled, and what `pipeline.open.open_document` raises.
        PageFailed: the process was lost, killed by the file (see `damaged`) or by something else.
    """
    request = OpenRequest(
        path=str(path),
        pages=options.pages,
        scratch=str(scratch),
        password=options.password,
        max_bytes=config.max_file_mb * 2**20,
        max_pages=config.max_pages,
        max_page_pixels=config.max_page_megapixels * 1_000_000,
    )
    task = Task("pipeline.open:open_document", request, seconds=_OPEN_SECONDS)
    document: SourceDocument = processes.call(task, cancelled)
    return document


def damaged(error: PageFailed) -> Damaged:
    """What to call a file that kills or hangs the process that opens it."""
    return Damaged(f"The file could not be opened. {error.message}")


def window_task(
    source: SourceDocument,
    pages: Sequence[int],
    options: ParseOptions,
    store: Path,
    *,
    seconds: float,
    threads: int,
    markdown: bool = False,
) -> Task:
    """The task that recognises pages (0-based) into the `PageStore` in `store` and yields their records.

    Args:
        seconds: deadline of each page.
        threads: for the models.
        markdown: also store the Markdown of each page by itself.
    """
    request = WindowRequest(
        pdf=source.path,
        password=source.password,
        pages=tuple(pages),
        store=str(store),
        route=options.route,
        quality=options.quality,
        threads=threads,
        markdown=markdown,
        engine=configured_engine() if options.route in (Route.AUTO, Route.VLM) else None,
        page_seconds=seconds,
    )
    return Task("pipeline.recognise:recognise_window", request, seconds=seconds, units=len(pages))


def assemble_document(
    folder: Path,
    source: SourceDocument,
    pages: tuple[int, ...],
    processes: PageProcesses,
    cancelled: threading.Event | None = None,
) -> None:
    """Put the finished pages in an output folder's store together, in a page process.

    Raises:
        Cancelled, DiskFull, OutputNotWritable, PipelineError.
    """
    request = AssembleRequest(
        folder=folder,
        pages=pages,
        page_count=source.page_count,
        pdf=source.path if source.kind is SourceKind.PDF else None,
        password=source.password,
    )
    try:
        seconds = _OPEN_SECONDS + _ASSEMBLE_SECONDS_PER_PAGE * len(pages)
        processes.call(Task("pipeline.assemble:assemble", request, seconds=seconds), cancelled)
    except PageFailed as error:
        raise PipelineError(f"The finished pages could not be put together: {error.message}") from error


def model_threads(processes: int) -> int:
    """Threads for the models in each process, so that all together use the machine once."""
    return max(1, len(os.sched_getaffinity(0)) // processes)
