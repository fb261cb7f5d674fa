"""The pages of one document through the page processes: windows out, records in, attempts bounded.

A window that is lost (crash, hang, out of memory) costs one attempt of the pages that it had not finished:
each is tried once more by itself, so that one bad page is found and its neighbours are not hurt by it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

from pipeline.document import SourceDocument
from pipeline.errors import Cancelled, PageCrashed, PageFailed, PipelineError
from pipeline.options import ParseOptions
from pipeline.page_store import PageRecord
from pipeline.processes import PageProcesses
from pipeline.steps import window_task

_CRASHES_FORGIVEN = 1
"""A lone page whose process dies (perhaps killed from outside) is tried this often again; one that is too
slow or too large is not, since it would be again."""


@dataclass(frozen=True, slots=True)
class _Window:
    pages: tuple[int, ...]
    crashes: int = 0


def plan_windows(pages: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Cut pages into windows of at most `size` neighbours. The first page goes alone, to show at once.

    The cut depends on the pages alone and not on the number of processes, so that every run of one document
    gives the same result.
    """
    first, rest = tuple(pages[:1]), pages[1:]
    windows = [first] if first else []
    for start in range(0, len(rest), size):
        windows.append(tuple(rest[start : start + size]))
    return windows


def recognise_pages(
    processes: PageProcesses,
    source: SourceDocument,
    pages: Sequence[int],
    options: ParseOptions,
    store: Path,
    *,
    window_pages: int,
    page_seconds: float,
    threads: int,
    cancelled: threading.Event,
) -> Iterator[PageRecord]:
    """Recognise pages of one document and yield each page's record as it is finished, in any order.

    At most two windows for each process are under way, so that documents sharing the processes take turns.

    Raises:
        Cancelled, DiskFull, OutputNotWritable, RouteUnavailable and other errors that concern the whole run;
        errors of single pages are in their records.
    """
    waiting = deque(_Window(window) for window in plan_windows(pages, window_pages))
    arrived: queue.SimpleQueue[PageRecord | tuple[_Window, PipelineError | None]] = queue.SimpleQueue()
    unfinished = set(pages)
    under_way = 0
    futures: list[Future[None]] = []

    def submit(window: _Window) -> None:
        task = window_task(source, window.pages, options, store, seconds=page_seconds, threads=threads)
        future = processes.submit(task, arrived.put, cancelled)
        futures.append(future)
        future.add_done_callback(lambda done: arrived.put((window, _error_of(done))))

    try:
        while waiting or under_way:
            while waiting and under_way < 2 * processes.size:
                submit(waiting.popleft())
                under_way += 1
            item = arrived.get()
            if isinstance(item, PageRecord):
                unfinished.discard(item.index)
                yield item
                continue
            window, error = item
            under_way -= 1
            lost = [page for page in window.pages if page in unfinished]
            if error is not None and not isinstance(error, PageFailed):
                raise error
            for page in lost:
                failed = error or PageFailed("The page process ended without a word on this page.")
                if len(window.pages) > 1:
                    waiting.append(_Window((page,)))
                elif isinstance(failed, PageCrashed) and window.crashes < _CRASHES_FORGIVEN:
                    waiting.append(_Window((page,), window.crashes + 1))
                else:
                    unfinished.discard(page)
                    yield PageRecord(page, None, "", 0.0, error_code=failed.code, error=failed.message)
    finally:
        if under_way:
            cancelled.set()
            # Nobody writes into the store once this returns. Waiting for a cancelled future would never end.
            wait([future for future in futures if not future.cancel()])


def _error_of(future: Future[None]) -> PipelineError | None:
    if future.cancelled():
        return Cancelled("Cancelled before it finished.")
    error = future.exception()
    if error is None or isinstance(error, PipelineError):
        return error
    return PageFailed(f"{type(error).__name__}: {error}")
