"""Every change of state of a job, its documents, pages and pieces, each conditional on the state that it leaves.

Who changes anything of a job locks the job's row first (`lock_job`). So changes of one job happen one after the
other, and its documents' events are committed in the order of their ids. A function here answers False, and
changes nothing, where the state is not the one that it leaves.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update

from pipeline.document import BadPage
from pipeline.page_store import PageRecord
from workers.store import statements as sql
from workers.store.database import Transaction
from workers.store.models import deliveries, documents, jobs, pages
from workers.store.statements import QUEUED
from workers.store.types import LIVE, DocumentState, EventKind, JobKind, PageStatus


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something failed: a stable code and a sentence."""

    code: str
    message: str


def lock_job(tx: Transaction, key: str) -> Row[Any]:
    return tx.execute(sql.LOCK_JOB, {"p_key": key}).one()


# Jobs, and with them their documents.


def queue_job(tx: Transaction, key: str, came_from: Collection[DocumentState]) -> bool:
    """To the start: `queued`, with a piece that prepares it."""
    changed = _move_job(tx, key, came_from, DocumentState.QUEUED, stage=JobKind.PREPARE, error_code=None, error=None)
    if changed:
        add_pieces(tx, key, JobKind.PREPARE, [()])
    return changed


def start_preparing(tx: Transaction, key: str) -> bool:
    changed = _move_job(tx, key, {DocumentState.QUEUED}, DocumentState.PREPARING, started_at=tx.now)
    if changed:
        _follow(tx, key, DocumentState.PREPARING, EventKind.PREPARING)
    return changed


def opened(
    tx: Transaction,
    key: str,
    *,
    page_count: int,
    source_kind: str,
    selected: Sequence[int],
    bad: Iterable[BadPage],
    kind: JobKind,
    windows: Sequence[tuple[int, ...]],
) -> bool:
    """`preparing -> running`, or straight to `assembling` where preflight refused every page asked for."""
    facts = {"page_count": page_count, "source_kind": source_kind, "pages_total": len(selected)}
    if not _move_job(tx, key, {DocumentState.PREPARING}, DocumentState.RUNNING, stage=kind, **facts):
        return False
    tx.execute(
        sql.ADD_PAGES,
        [
            {"job_key": key, "number": index, "state": PageStatus.QUEUED, "warnings": [], "why": "", "seconds": 0.0}
            for index in selected
        ],
    )
    add_pieces(tx, key, kind, windows)
    _follow(
        tx,
        key,
        DocumentState.RUNNING,
        EventKind.OPENED,
        {"page_count": page_count, "pages_total": len(selected)},
    )
    for page in bad:
        finish_page(tx, key, PageRecord(page.index, None, "", 0.0, error_code=page.code, error=page.message))
    assemble_if_ready(tx, key)
    return True


def go_on(
    tx: Transaction,
    key: str,
    came_from: Collection[DocumentState],
    kind: JobKind,
    windows: Sequence[tuple[int, ...]],
) -> bool:
    """Back to `running` with the pages that are still to be done; to `assembling` where none is."""
    cleared = {"error_code": None, "error": None, "finished_at": None}
    if not _move_job(tx, key, came_from, DocumentState.RUNNING, stage=kind, **cleared):
        return False
    add_pieces(tx, key, kind, windows)
    assemble_if_ready(tx, key)
    return True


def assemble_if_ready(tx: Transaction, key: str) -> bool:
    """`running -> assembling` once no window is waiting or under way."""
    changed = tx.execute(sql.ASSEMBLE_IF_READY, {"p_key": key}).rowcount
    if changed:
        add_pieces(tx, key, JobKind.ASSEMBLE, [()])
        _follow(tx, key, DocumentState.ASSEMBLING, EventKind.ASSEMBLING)
    return bool(changed)


def finish_job(tx: Transaction, key: str) -> bool:
    """`assembling -> done | partial | failed`, as its pages went."""
    job = tx.execute(sql.COUNTS, {"p_key": key}).one()
    problem: Problem | None = None
    if job.pages_failed:
        first = tx.execute(
            select(pages.c.error_code, pages.c.error)
            .where(pages.c.job_key == key, pages.c.state == PageStatus.FAILED)
            .order_by(pages.c.number)
            .limit(1)
        ).one()
        problem = Problem(first.error_code, first.error)
    if not job.pages_failed:
        state = DocumentState.DONE
    else:
        state = DocumentState.PARTIAL if job.pages_done else DocumentState.FAILED
    return _end_job(tx, key, {DocumentState.ASSEMBLING}, state, problem)


def fail_job(tx: Transaction, key: str, problem: Problem) -> bool:
    """Any live state -> `failed`."""
    return _end_job(tx, key, LIVE, DocumentState.FAILED, problem)


def cancel_job(tx: Transaction, key: str) -> bool:
    """Any live state -> `cancelling`, or `cancelled` at once where no worker holds a piece."""
    if not _move_job(tx, key, LIVE, DocumentState.CANCELLING):
        return False
    _drop_pieces(tx, key)
    _follow(tx, key, DocumentState.CANCELLING, EventKind.CANCELLING)
    cancelled_if_idle(tx, key)
    return True


def cancelled_if_idle(tx: Transaction, key: str) -> bool:
    """`cancelling -> cancelled` once no worker holds a piece any more."""
    job = tx.execute(sql.STATE_AND_LEASED, {"p_key": key}).one()
    if job.state != DocumentState.CANCELLING or job.leased:
        return False
    return _end_job(tx, key, {DocumentState.CANCELLING}, DocumentState.CANCELLED, None)


def _end_job(
    tx: Transaction, key: str, came_from: Collection[DocumentState], state: DocumentState, problem: Problem | None
) -> bool:
    values: dict[str, Any] = {"finished_at": tx.now, "password": None}
    if problem is not None:
        values |= {"error_code": problem.code, "error": problem.message}
    if not _move_job(tx, key, came_from, state, **values):
        return False
    _drop_pieces(tx, key)
    _follow(tx, key, state, EventKind(state), problem=problem)
    return True


def _move_job(
    tx: Transaction, key: str, came_from: Collection[DocumentState], state: DocumentState, **values: Any
) -> bool:
    values["state"] = state
    statement = sql.move_job(frozenset(came_from), frozenset(values))
    return bool(tx.execute(statement, {"p_key": key, **sql.parameters(values)}).rowcount)


# Documents.


def _follow(
    tx: Transaction,
    key: str,
    state: DocumentState,
    kind: EventKind,
    data: dict[str, Any] | None = None,
    problem: Problem | None = None,
) -> None:
    """Move the unfinished documents of a job along with it."""
    ids = live_documents(tx, key)
    if not ids:
        return
    values: dict[str, Any] = {"state": state}
    if state.finished:
        values["finished_at"] = tx.now
    if problem is not None:
        values |= {"error_code": problem.code, "error": problem.message}
    tx.execute(sql.move_documents(frozenset(values)), {"p_ids": ids, **sql.parameters(values)})
    add_events(tx, ids, kind, data if data is not None else _ending(state, problem))


def live_documents(tx: Transaction, key: str) -> list[str]:
    """Ids of a job's unfinished documents."""
    return list(tx.execute(sql.LIVE_DOCUMENTS, {"p_key": key}).scalars())


def cancel_document(tx: Transaction, document_id: str) -> bool:
    """One document leaves a job that others still need: any live state -> `cancelled`."""
    changed = tx.execute(
        update(documents)
        .where(documents.c.id == document_id, documents.c.state.in_(sorted(LIVE)))
        .values(state=DocumentState.CANCELLED, finished_at=tx.now)
    ).rowcount
    if changed:
        add_events(tx, [document_id], EventKind.CANCELLED, {})
    return bool(changed)


def reopen_documents(tx: Transaction, ids: Sequence[str], state: DocumentState) -> None:
    """`failed | partial | cancelled -> state` for a retry."""
    retryable = [DocumentState.FAILED, DocumentState.PARTIAL, DocumentState.CANCELLED]
    tx.execute(
        update(documents)
        .where(documents.c.id.in_(ids), documents.c.state.in_(retryable))
        .values(state=state, error_code=None, error=None, finished_at=None)
    )
    add_events(tx, ids, EventKind.RETRIED, {"state": state})


def add_events(tx: Transaction, ids: Sequence[str], kind: EventKind, data: dict[str, Any]) -> None:
    """Append an event to each document; one that ends a document with a webhook also becomes a delivery."""
    ends = kind in (EventKind.DONE, EventKind.PARTIAL, EventKind.FAILED, EventKind.CANCELLED)
    for document_id in ids:
        values = {"document_id": document_id, "kind": kind, "at": tx.now, "data": data}
        event_id = tx.execute(sql.ADD_EVENT, values).inserted_primary_key[0]
        if ends:
            url = tx.execute(sql.WEBHOOK, {"p_id": document_id}).scalar_one()
            if url:
                delivery = {"document_id": document_id, "event_id": event_id, "url": url, "due_at": tx.now}
                tx.execute(insert(deliveries).values(state="due", attempts=0, **delivery))


def _ending(state: DocumentState, problem: Problem | None) -> dict[str, Any]:
    if not state.finished or state is DocumentState.CANCELLED:
        return {}
    return {
        "error_code": problem.code if problem else None,
        "error": problem.message if problem else None,
    }


# Pages.


def finish_page(tx: Transaction, key: str, record: PageRecord) -> bool:
    """`queued -> done | failed`; a page is finished once, whoever tells it."""
    state = PageStatus.DONE if record.ok else PageStatus.FAILED
    changed = tx.execute(
        sql.FINISH_PAGE,
        {
            "p_key": key,
            "p_number": record.index,
            "p_state": state,
            "p_route": record.route,
            "p_why": record.why,
            "p_seconds": record.seconds,
            "p_warnings": list(record.warnings),
            "p_error_code": record.error_code,
            "p_error": record.error,
            "p_now": tx.now,
        },
    ).rowcount
    if not changed:
        return False
    counted = {"p_key": key, "p_done": int(record.ok), "p_failed": int(not record.ok)}
    job = tx.execute(sql.COUNT_PAGE, counted).one()
    data = {
        "page": record.index + 1,
        "state": state,
        "route": record.route,
        "error_code": record.error_code,
        "error": record.error,
        "pages_done": job.pages_done,
        "pages_failed": job.pages_failed,
        "pages_total": job.pages_total,
    }
    add_events(tx, live_documents(tx, key), EventKind.PAGE, data)
    return True


def requeue_failed_pages(tx: Transaction, key: str) -> None:
    """`failed -> queued`, for a retry."""
    reset = tx.execute(
        update(pages)
        .where(pages.c.job_key == key, pages.c.state == PageStatus.FAILED)
        .values(state=PageStatus.QUEUED, error_code=None, error=None, finished_at=None)
    ).rowcount
    tx.execute(update(jobs).where(jobs.c.key == key).values(pages_failed=jobs.c.pages_failed - reset))


def unfinished_pages(tx: Transaction, key: str) -> list[int]:
    return list(tx.execute(sql.OPEN_PAGES, {"p_key": key}).scalars())


# Pieces and their leases.


def add_pieces(tx: Transaction, key: str, kind: JobKind, windows: Sequence[tuple[int, ...]], failures: int = 0) -> None:
    """New pieces, `queued`."""
    if not windows:
        return
    fresh = {"job_key": key, "kind": kind, "state": QUEUED, "created_at": tx.now, "failures": failures}
    fresh |= {"losses": 0, "attempts": 0, "not_before": 0.0}
    tx.execute(sql.ADD_PIECES, [{**fresh, "pages": list(window)} for window in windows])
    tx.execute(sql.COUNT_QUEUED, {"p_key": key, "p_count": len(windows)})


def lease_piece(tx: Transaction, piece: Row[Any], worker: str, seconds: float) -> str | None:
    """`queued -> leased`; answers the lease's token."""
    token = secrets.token_hex(16)
    lease = {"p_worker": worker, "p_token": token, "p_seconds": seconds, "p_expires_at": tx.now + seconds}
    if not tx.execute(sql.LEASE_PIECE, {"p_id": piece.id, **lease}).rowcount:
        return None
    tx.execute(sql.COUNT_LEASE, {"p_key": piece.job_key, "p_now": tx.now})
    attempt = {"piece_id": piece.id, "job_key": piece.job_key, "kind": piece.kind, "number": piece.attempts + 1}
    tx.execute(sql.BEGIN_ATTEMPT, {**attempt, "worker": worker, "started_at": tx.now})
    return token


def end_piece(tx: Transaction, piece: Row[Any], state: str, outcome: str, problem: Problem | None = None) -> bool:
    """`leased -> ended | parked | dropped`."""
    return _leave_lease(tx, piece, outcome, problem, state=state)


def return_piece(
    tx: Transaction,
    piece: Row[Any],
    outcome: str,
    problem: Problem | None = None,
    *,
    failures: int = 0,
    losses: int = 0,
    delay: float = 0.0,
) -> bool:
    """`leased -> queued`, to be taken again after `delay` seconds."""
    changed = _leave_lease(
        tx,
        piece,
        outcome,
        problem,
        state=QUEUED,
        failures=failures,
        losses=losses,
        not_before=tx.now + delay if delay else 0.0,
    )
    if changed:
        tx.execute(sql.COUNT_QUEUED, {"p_key": piece.job_key, "p_count": 1})
    return changed


def _leave_lease(
    tx: Transaction,
    piece: Row[Any],
    outcome: str,
    problem: Problem | None,
    *,
    state: str,
    failures: int = 0,
    losses: int = 0,
    not_before: float | None = None,
) -> bool:
    values = {
        "state": state,
        "failures": failures,
        "losses": losses,
        "not_before": piece.not_before if not_before is None else not_before,
        "error_code": problem.code if problem else None,
        "error": problem.message if problem else None,
    }
    held = {"p_id": piece.id, "p_token": piece.lease_token}
    if not tx.execute(sql.LEAVE_LEASE, {**held, **sql.parameters(values)}).rowcount:
        return False
    tx.execute(sql.UNCOUNT_LEASE, {"p_key": piece.job_key})
    ended = {"p_outcome": outcome, "p_error_code": problem.code if problem else None, "p_now": tx.now}
    tx.execute(sql.END_ATTEMPT, {"p_id": piece.id, "p_number": piece.attempts, **ended})
    return True


def _drop_pieces(tx: Transaction, key: str) -> None:
    """`queued -> dropped` for all pieces of a job that nobody holds."""
    dropped = tx.execute(sql.DROP_PIECES, {"p_key": key}).rowcount
    if dropped:
        tx.execute(update(jobs).where(jobs.c.key == key).values(queued=jobs.c.queued - dropped))
