"""A worker in a few lines: claims and reports, without parsing anything."""

from __future__ import annotations

from pipeline.document import BadPage
from pipeline.page_model import Route
from pipeline.page_store import PageRecord
from pipeline.windows import plan_windows
from workers.store import Claim, JobKind, JobStore

LEASE = 30.0


def record(index: int, error: str | None = None) -> PageRecord:
    return PageRecord(index, None if error else Route.FLASH, "told", 0.1, error_code=error, error=error)


def take(store: JobStore, kind: JobKind, worker: str = "w1") -> Claim:
    claim = store.claim([kind], worker, LEASE)
    assert claim is not None, f"there is no {kind} to claim"
    return claim


def open_document(store: JobStore, pages: int, bad: tuple[BadPage, ...] = ()) -> Claim:
    claim = take(store, JobKind.PREPARE)
    good = [index for index in range(pages) if index not in {page.index for page in bad}]
    store.opened(
        claim,
        page_count=pages,
        source_kind="pdf",
        selected=range(pages),
        bad=bad,
        windows=plan_windows(good, 4),
    )
    return claim


def do_window(store: JobStore, claim: Claim) -> None:
    for index in claim.pages:
        store.page_finished(claim, record(index))
    store.window_ended(claim)


def do_pages(store: JobStore) -> None:
    while (claim := store.claim([JobKind.PAGE, JobKind.RECOGNISE], "w1", LEASE)) is not None:
        do_window(store, claim)


def do_all(store: JobStore, pages: int) -> None:
    open_document(store, pages)
    do_pages(store)
    store.assembled(take(store, JobKind.ASSEMBLE))
