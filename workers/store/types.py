"""What crosses the border of the job store. Every time is in seconds since the epoch, by the store's own clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from pipeline.options import ParseOptions
from pipeline.page_model import Route


class DocumentState(StrEnum):
    """Where a document is. `queued -> preparing -> running -> assembling -> done | partial | failed`.

    Any unfinished state may also go to `cancelling` (its work is being stopped) and then `cancelled`.
    Jobs use the same states; a document follows its job, except when it alone is cancelled.
    """

    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    ASSEMBLING = "assembling"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        return self in FINISHED


FINISHED = frozenset({DocumentState.DONE, DocumentState.PARTIAL, DocumentState.FAILED, DocumentState.CANCELLED})
UNFINISHED = frozenset(DocumentState) - FINISHED
LIVE = UNFINISHED - {DocumentState.CANCELLING}
"""Unfinished and not being cancelled."""


class PageStatus(StrEnum):
    QUEUED = "queued"
    DONE = "done"
    FAILED = "failed"


class JobKind(StrEnum):
    """The kinds of work, which are also the names of the Celery queues.

    PAGE and RECOGNISE are both windows of pages. Those of the route vlm have a queue of their own, since they mostly
    wait for an engine, and must not hold up what a processor is free for.
    """

    PREPARE = "prepare"
    PAGE = "page"
    RECOGNISE = "recognise"
    ASSEMBLE = "assemble"


WINDOWS = frozenset({JobKind.PAGE, JobKind.RECOGNISE})


def window_kind(route: str) -> JobKind:
    """The kind of a job's windows of pages, by the route that is asked for."""
    return JobKind.RECOGNISE if route == Route.VLM else JobKind.PAGE


class EventKind(StrEnum):
    """What happened to a document; `Event.data` says more.

    accepted: {state}.  opened: {page_count, pages_total}.  page: {page (from 1), state, route, error_code, error,
    pages_done, pages_failed, pages_total}.  The others are the state that was entered; the last ones have
    {error_code, error}.
    """

    ACCEPTED = "accepted"
    PREPARING = "preparing"
    OPENED = "opened"
    PAGE = "page"
    ASSEMBLING = "assembling"
    RETRIED = "retried"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to accept. Its bytes are already in the artifact store as `inputs/<sha256>`.

    Attributes:
        tenant: whose it is; "" where there are no tenants.
        name: the file's name as the user knows it.
        sha256: of the input's bytes, hex.
        size_bytes: of the input.
        options: how to parse it. `force` makes a job of its own. The password is kept in the store until the
            document's job is finished and is then erased.
        priority: higher goes first.
        idempotency_key: a second document of the same tenant with the same key is the first one.
        webhook_url: told how the document ended.
    """

    tenant: str
    name: str
    sha256: str
    size_bytes: int
    options: ParseOptions = field(default_factory=ParseOptions)
    priority: int = 0
    batch_id: str | None = None
    idempotency_key: str | None = None
    webhook_url: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the store knows it.

    Attributes:
        job_key: the job whose artifacts are this document's: `jobs/<job_key>/...`.
        options: as asked for, without the password.
        page_count: pages of the whole file; None until it is opened.
        pages_total: pages asked for; None until it is opened.
        pages_done, pages_failed: of `pages_total`.
        error_code, error: why it failed, or the first reason why it is partial.
        expired: its artifacts have been removed by age or budget.
    """

    id: str
    tenant: str
    name: str
    sha256: str
    size_bytes: int
    options: ParseOptions
    priority: int
    batch_id: str | None
    webhook_url: str | None
    job_key: str
    state: DocumentState
    error_code: str | None
    error: str | None
    page_count: int | None
    pages_total: int | None
    pages_done: int
    pages_failed: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class DocumentList:
    """One page of a list, newest first. `next_cursor` is None at the end."""

    documents: tuple[Document, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class PageState:
    """One page of a document's job. `index` counts from 0; `route` as in `PageRecord`."""

    index: int
    state: PageStatus
    route: str | None = None
    why: str = ""
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    error_code: str | None = None
    error: str | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one document. `id` grows, so that a reader can go on after the last it saw."""

    id: int
    document_id: str
    kind: EventKind
    at: float
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents submitted together. `counts` has every state, as text, that occurs among them."""

    id: str
    tenant: str
    name: str
    created_at: float
    counts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removed document leaves without an owner, for the artifact store to delete; None where still used."""

    job_key: str | None
    input_sha256: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A piece of work that a worker holds until `expires_at`.

    Attributes:
        token: proves the lease; every report is refused once another worker has it.
        job: what decides the result, as in a manifest.
        name: the input's name.
        options: with the password.
        source_kind: "pdf" or "image"; None before the input is opened.
        pages: of a window: those not finished yet, 0-based. Of assembly: all pages asked for. Else empty.
        attempt: counts from 1.
        job_started_at: when the job was first claimed.
    """

    piece_id: int
    kind: JobKind
    token: str
    worker: str
    job_key: str
    job: dict[str, Any]
    sha256: str
    size_bytes: int
    name: str
    options: ParseOptions
    page_count: int
    source_kind: str | None
    pages: tuple[int, ...]
    attempt: int
    lease_seconds: float
    expires_at: float
    job_started_at: float


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process. Alive as long as `seen_at` is recent."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    started_at: float
    seen_at: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """How much there is to do. Counts by state or kind, as text."""

    documents: dict[str, int]
    queued: dict[str, int]
    leased: dict[str, int]
    pages_waiting: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook call that is due. `attempt` counts from 1."""

    id: int
    document_id: str
    event: Event
    url: str
    attempt: int


class StoreError(Exception):
    """Base of what the store refuses. `code` is stable."""

    code: ClassVar[str] = "store_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(StoreError):
    code = "not_found"


class IdempotencyConflict(StoreError):
    """The key was used for another document."""

    code = "idempotency_conflict"


class NotFinished(StoreError):
    """Only finished documents can be removed: cancel it first."""

    code = "not_finished"


class NotRetryable(StoreError):
    """Only documents that failed, are partial or were cancelled can be tried again."""

    code = "not_retryable"


class LeaseLost(StoreError):
    """The worker does not hold the piece any more: stop, and report nothing."""

    code = "lease_lost"
