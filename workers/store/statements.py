"""The statements that every piece of work needs, built once: building one costs more than running it.

Parameters begin with `p_`, since SQLAlchemy keeps the columns' own names for itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import bindparam, exists, func, insert, literal, literal_column, select, union_all, update

from workers.store.models import attempts, documents, events, jobs, pages, pieces, tenants
from workers.store.types import LIVE, UNFINISHED, DocumentState, JobKind, PageStatus

QUEUED, LEASED, ENDED, PARKED, DROPPED = "queued", "leased", "ended", "parked", "dropped"
"""States of a piece: waiting, held by a worker, done with, given up with its error, not wanted any more."""

_LIVE, _UNFINISHED = sorted(LIVE), sorted(UNFINISHED)
_key: Any = bindparam("p_key")
_now: Any = bindparam("p_now")
_kind: Any = bindparam("p_kind")
_id: Any = bindparam("p_id")
_token: Any = bindparam("p_token")

LOCK_JOB = select(jobs).where(jobs.c.key == _key).with_for_update()


@cache
def move_job(came_from: frozenset[DocumentState], columns: frozenset[str]) -> Any:
    """Set these columns of a job in one of these states; parameters `p_key` and `p_COLUMN`."""
    values = {name: bindparam(f"p_{name}", type_=jobs.c[name].type) for name in sorted(columns)}
    return update(jobs).where(jobs.c.key == _key, jobs.c.state.in_(sorted(came_from))).values(**values)


@cache
def move_documents(columns: frozenset[str]) -> Any:
    """Set these columns of unfinished documents; parameters `p_ids` and `p_COLUMN`."""
    values = {name: bindparam(f"p_{name}", type_=documents.c[name].type) for name in sorted(columns)}
    ids: Any = bindparam("p_ids", expanding=True)
    return update(documents).where(documents.c.id.in_(ids), documents.c.state.in_(_UNFINISHED)).values(**values)


def parameters(values: dict[str, Any]) -> dict[str, Any]:
    """The values of columns as parameters of the statements above."""
    return {f"p_{name}": value for name, value in values.items()}


# Claims.

_queued: Any = jobs.c.queued > literal_column("0")
"""As the index says it: with a parameter for the 0, SQLite would not take it."""

HAS_WORK = select(exists().where(jobs.c.stage == _kind, jobs.c.state.in_(_LIVE), _queued))

_under_way = (
    select(func.sum(jobs.c.leased))
    .where(jobs.c.tenant == tenants.c.tenant, jobs.c.state.in_(_LIVE), jobs.c.leased > literal_column("0"))
    .scalar_subquery()
)
_top_priority = (
    select(func.max(jobs.c.priority))
    .where(jobs.c.stage == _kind, jobs.c.tenant == tenants.c.tenant, jobs.c.state.in_(_LIVE), _queued)
    .scalar_subquery()
)
NEXT_TENANTS = (
    select(tenants.c.tenant, _top_priority.label("priority"))
    .where(_top_priority.is_not(None))
    .order_by(_top_priority.desc(), func.coalesce(_under_way, 0), tenants.c.turn)
)
"""Those with queued work of a kind, in the order in which they are to be served."""

READY = exists().where(pieces.c.job_key == jobs.c.key, pieces.c.state == QUEUED, pieces.c.not_before <= _now)
"""A job has a piece whose time has come."""

NEXT_JOB = (
    select(jobs.c.key)
    .where(
        jobs.c.stage == _kind,
        jobs.c.tenant == bindparam("p_tenant"),
        jobs.c.priority == bindparam("p_priority"),
        jobs.c.state.in_(_LIVE),
        _queued,
        jobs.c.key.not_in(bindparam("p_passed", expanding=True)),
        READY,
    )
    .order_by(jobs.c.leased, jobs.c.turn, jobs.c.key)
    .limit(1)
)
NEXT_PRIORITY = select(func.max(jobs.c.priority)).where(
    jobs.c.stage == _kind,
    jobs.c.tenant == bindparam("p_tenant"),
    jobs.c.priority < bindparam("p_priority"),
    jobs.c.state.in_(_LIVE),
    _queued,
)
NEXT_PIECE = (
    select(pieces)
    .where(pieces.c.job_key == _key, pieces.c.state == QUEUED, pieces.c.not_before <= _now)
    .order_by(pieces.c.id)
    .limit(1)
)
SERVE_TENANT = update(tenants).where(tenants.c.tenant == bindparam("p_tenant")).values(turn=_now)
OPEN_PAGES = (
    select(pages.c.number).where(pages.c.job_key == _key, pages.c.state == PageStatus.QUEUED).order_by(pages.c.number)
)

MOST_CLAIMABLE = 64


def _claimable(kind: JobKind) -> Any:
    some = (
        select(jobs.c.queued)
        .where(jobs.c.stage == kind, jobs.c.state.in_(_LIVE), _queued, READY)
        .limit(MOST_CLAIMABLE)
        .subquery()
    )
    return select(literal(str(kind)), func.sum(some.c.queued))


CLAIMABLE = union_all(*map(_claimable, JobKind))
"""Pieces that could be claimed, by kind: all of them, or those of so many jobs that more would tell nobody anything."""

# Leases.

LEASE_PIECE = (
    update(pieces)
    .where(pieces.c.id == _id, pieces.c.state == QUEUED)
    .values(
        state=LEASED,
        lease_owner=bindparam("p_worker"),
        lease_token=_token,
        lease_seconds=bindparam("p_seconds"),
        lease_expires_at=bindparam("p_expires_at"),
        attempts=pieces.c.attempts + 1,
    )
)
COUNT_LEASE = (
    update(jobs).where(jobs.c.key == _key).values(queued=jobs.c.queued - 1, leased=jobs.c.leased + 1, turn=_now)
)
BEGIN_ATTEMPT = insert(attempts)
HELD_PIECE = select(pieces).where(pieces.c.id == _id, pieces.c.lease_token == _token)
EXTEND_LEASE = (
    update(pieces)
    .where(pieces.c.id == _id, pieces.c.state == LEASED, pieces.c.lease_token == _token)
    .values(lease_expires_at=bindparam("p_expires_at"))
)
PROGRESS = update(pieces).where(pieces.c.id == _id).values(lease_expires_at=bindparam("p_expires_at"), losses=0)
LEAVE_LEASE = (
    update(pieces)
    .where(pieces.c.id == _id, pieces.c.state == LEASED, pieces.c.lease_token == _token)
    .values(
        lease_expires_at=None,
        state=bindparam("p_state"),
        failures=pieces.c.failures + bindparam("p_failures"),
        losses=pieces.c.losses + bindparam("p_losses"),
        not_before=bindparam("p_not_before"),
        error_code=func.coalesce(bindparam("p_error_code"), pieces.c.error_code),
        error=func.coalesce(bindparam("p_error"), pieces.c.error),
    )
)
UNCOUNT_LEASE = update(jobs).where(jobs.c.key == _key).values(leased=jobs.c.leased - 1)
END_ATTEMPT = (
    update(attempts)
    .where(attempts.c.piece_id == _id, attempts.c.number == bindparam("p_number"))
    .values(ended_at=_now, outcome=bindparam("p_outcome"), error_code=bindparam("p_error_code"))
)
COUNT_QUEUED = update(jobs).where(jobs.c.key == _key).values(queued=jobs.c.queued + bindparam("p_count"))
ADD_PIECES = insert(pieces)
DROP_PIECES = update(pieces).where(pieces.c.job_key == _key, pieces.c.state == QUEUED).values(state=DROPPED)

# Pages, documents, events.

FINISH_PAGE = (
    update(pages)
    .where(pages.c.job_key == _key, pages.c.number == bindparam("p_number"), pages.c.state == PageStatus.QUEUED)
    .values(
        state=bindparam("p_state"),
        route=bindparam("p_route"),
        why=bindparam("p_why"),
        seconds=bindparam("p_seconds"),
        warnings=bindparam("p_warnings", type_=pages.c.warnings.type),
        error_code=bindparam("p_error_code"),
        error=bindparam("p_error"),
        finished_at=_now,
    )
)
COUNT_PAGE = (
    update(jobs)
    .where(jobs.c.key == _key)
    .values(
        pages_done=jobs.c.pages_done + bindparam("p_done"), pages_failed=jobs.c.pages_failed + bindparam("p_failed")
    )
    .returning(jobs.c.pages_done, jobs.c.pages_failed, jobs.c.pages_total)
)
ADD_PAGES = insert(pages)
ALL_PAGES = select(pages.c.number).where(pages.c.job_key == _key).order_by(pages.c.number)
COUNTS = select(jobs.c.pages_done, jobs.c.pages_failed).where(jobs.c.key == _key)
WEBHOOK = select(documents.c.webhook_url).where(documents.c.id == _id)
LIVE_DOCUMENTS = select(documents.c.id).where(documents.c.job_key == _key, documents.c.state.in_(_UNFINISHED))
ADD_EVENT = insert(events)
ASSEMBLE_IF_READY = (
    update(jobs)
    .where(jobs.c.key == _key, jobs.c.state == DocumentState.RUNNING, jobs.c.queued == 0, jobs.c.leased == 0)
    .values(state=DocumentState.ASSEMBLING, stage=JobKind.ASSEMBLE)
)
STATE_AND_LEASED = select(jobs.c.state, jobs.c.leased).where(jobs.c.key == _key)
