"""Documents: accepted once, found again, cancelled, tried again, removed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Row, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.manifest import describe_job
from pipeline.options import ParseOptions
from pipeline.page_model import Quality, Route
from pipeline.windows import plan_windows
from workers.store import states
from workers.store.database import HasDatabase, Transaction, patient
from workers.store.models import attempts, batches, deliveries, documents, events, jobs, pages, pieces, tenants
from workers.store.types import (
    FINISHED,
    LIVE,
    UNFINISHED,
    Batch,
    Document,
    DocumentList,
    DocumentState,
    EventKind,
    IdempotencyConflict,
    JobKind,
    NewDocument,
    NotFinished,
    NotFound,
    NotRetryable,
    PageState,
    PageStatus,
    Removed,
    window_kind,
)


def new_id(prefix: str) -> str:
    """A UUID of version 7, so that ids sort by the time at which they were made: `doc_0190...`."""
    value = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
    return f"{prefix}_{value:032x}"


class DocumentStore(HasDatabase):
    """The part of the job store that those who submit documents use."""

    window_pages: int
    tell: Callable[[], None]

    def accept(self, new: NewDocument) -> Document:
        """Take a document on. When this returns it is on the disk, and it will end.

        One of equal bytes and options shares the job that is under way, or its result (the document is then
        `done` at once), unless `options.force` is set.

        Raises:
            IdempotencyConflict: the tenant used the key for another document before.
        """
        document_id = new_id("doc")
        # Outside of the transaction: it may have to ask an engine for its model.
        description = describe_job(new.sha256, new.options)
        while True:
            try:
                document = self._accept(document_id, new, description)
                self.tell()
                return document
            except IntegrityError:
                # Somebody else made the same job, or the same idempotency key, just now: look again.
                if self._batch_is_missing(new.batch_id):
                    raise NotFound(f"There is no batch {new.batch_id}.") from None

    @patient
    def _accept(self, document_id: str, new: NewDocument, description: dict[str, Any]) -> Document:
        with self._db.write(durable=True) as tx:
            earlier = _earlier(tx, document_id, new)
            if earlier is not None:
                return _document(earlier)
            key, state = _job_for(tx, new, description)
            tx.execute(
                insert(documents).values(
                    id=document_id,
                    tenant=new.tenant,
                    name=new.name,
                    job_key=key,
                    input_sha256=new.sha256,
                    size_bytes=new.size_bytes,
                    options=_options_json(new.options),
                    priority=new.priority,
                    batch_id=new.batch_id,
                    idempotency_key=new.idempotency_key,
                    webhook_url=new.webhook_url,
                    state=state,
                    created_at=tx.now,
                    finished_at=tx.now if state in FINISHED else None,
                )
            )
            states.add_events(tx, [document_id], EventKind.ACCEPTED, {"state": state})
            if state in FINISHED:
                _copy_end(tx, document_id, key, state)
            return _document(_row(tx, document_id, None))

    def _batch_is_missing(self, batch_id: str | None) -> bool:
        with self._db.read() as tx:
            found = tx.execute(select(batches.c.id).where(batches.c.id == batch_id)).first()
            return batch_id is not None and found is None

    @patient
    def document(self, document_id: str, tenant: str | None = None) -> Document:
        """One document. Raises NotFound, also where it is another tenant's."""
        with self._db.read() as tx:
            return _document(_row(tx, document_id, tenant))

    @patient
    def pages(self, document_id: str, tenant: str | None = None) -> tuple[PageState, ...]:
        """The pages asked for, in order; empty until the document is opened. Raises NotFound."""
        with self._db.read() as tx:
            key = _row(tx, document_id, tenant).job_key
            rows = tx.execute(select(pages).where(pages.c.job_key == key).order_by(pages.c.number))
            return tuple(_page(row) for row in rows)

    @patient
    def job_pages(self, job_key: str) -> tuple[PageState, ...]:
        """The pages of a job, in order."""
        with self._db.read() as tx:
            rows = tx.execute(select(pages).where(pages.c.job_key == job_key).order_by(pages.c.number))
            return tuple(_page(row) for row in rows)

    @patient
    def page(self, document_id: str, index: int, tenant: str | None = None) -> PageState:
        """One page, by its 0-based index. Raises NotFound."""
        with self._db.read() as tx:
            key = _row(tx, document_id, tenant).job_key
            row = tx.execute(select(pages).where(pages.c.job_key == key, pages.c.number == index)).one_or_none()
            if row is None:
                raise NotFound(f"Document {document_id} has no page {index + 1}, or it is not opened yet.")
            return _page(row)

    @patient
    def list_documents(
        self,
        *,
        tenant: str | None = None,
        state: DocumentState | Sequence[DocumentState] | None = None,
        batch: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> DocumentList:
        """Documents, newest first. `cursor` is what the page before answered as `next_cursor`."""
        query = _select_documents()
        if tenant is not None:
            query = query.where(documents.c.tenant == tenant)
        if state is not None:
            wanted = [state] if isinstance(state, DocumentState) else list(state)
            query = query.where(documents.c.state.in_(wanted))
        if batch is not None:
            query = query.where(documents.c.batch_id == batch)
        if cursor is not None:
            query = query.where(documents.c.id < cursor)
        with self._db.read() as tx:
            rows = list(tx.execute(query.order_by(documents.c.id.desc()).limit(limit + 1)))
        more = len(rows) > limit
        found = tuple(_document(row) for row in rows[:limit])
        return DocumentList(found, found[-1].id if more else None)

    @patient
    def cancel(self, document_id: str, tenant: str | None = None) -> Document:
        """Stop a document; one that is finished stays as it is. Its work stops only if no other document needs it.

        Raises NotFound.
        """
        with self._db.write(durable=True) as tx:
            row = _row(tx, document_id, tenant)
            states.lock_job(tx, row.job_key)
            others = [other for other in states.live_documents(tx, row.job_key) if other != document_id]
            if others:
                states.cancel_document(tx, document_id)
            elif _row(tx, document_id, tenant).state in UNFINISHED:
                states.cancel_job(tx, row.job_key)
            return _document(_row(tx, document_id, tenant))

    def retry(self, document_id: str, tenant: str | None = None) -> Document:
        """Try a document again that failed, is partial or was cancelled. Finished pages are kept.

        Raises:
            NotFound, NotRetryable.
        """
        document = self._retry(document_id, tenant)
        self.tell()
        return document

    @patient
    def _retry(self, document_id: str, tenant: str | None) -> Document:
        with self._db.write(durable=True) as tx:
            row = _row(tx, document_id, tenant)
            job = states.lock_job(tx, row.job_key)
            if row.state in LIVE:
                return _document(row)
            if row.state in (DocumentState.DONE, DocumentState.CANCELLING):
                raise NotRetryable(f"Document {document_id} is {row.state}; there is nothing to try again.")
            if job.expired or (row.options.get("encrypted") and not job.password):
                raise NotRetryable("What the work needs is not kept any more: submit the document again.")
            if job.state not in LIVE:
                _restart(tx, job, self.window_pages)
            state = tx.execute(select(jobs.c.state).where(jobs.c.key == job.key)).scalar_one()
            if state == DocumentState.DONE:
                state = DocumentState.ASSEMBLING  # pragma: no cover - _restart never leaves a job done
            states.reopen_documents(tx, [document_id], DocumentState(state))
            return _document(_row(tx, document_id, tenant))

    @patient
    def remove(self, document_id: str, tenant: str | None = None) -> Removed:
        """Forget a finished document, and its job if no other document has it.

        Raises:
            NotFound, NotFinished.
        """
        with self._db.write(durable=True) as tx:
            row = _row(tx, document_id, tenant)
            if row.state not in FINISHED:
                raise NotFinished(f"Document {document_id} is {row.state}: cancel it before you remove it.")
            states.lock_job(tx, row.job_key)
            for table in (deliveries, events):
                tx.execute(delete(table).where(table.c.document_id == document_id))
            tx.execute(delete(documents).where(documents.c.id == document_id))
            job_gone = tx.execute(select(documents.c.id).where(documents.c.job_key == row.job_key)).first() is None
            if job_gone:
                for table in (attempts, pieces, pages):
                    tx.execute(delete(table).where(table.c.job_key == row.job_key))
                tx.execute(delete(jobs).where(jobs.c.key == row.job_key))
            used = select(jobs.c.key).where(jobs.c.input_sha256 == row.input_sha256)
            input_gone = tx.execute(used).first() is None
            return Removed(row.job_key if job_gone else None, row.input_sha256 if input_gone else None)

    @patient
    def create_batch(self, tenant: str, name: str = "") -> Batch:
        """An empty batch; documents name it when they are accepted."""
        batch_id = new_id("batch")
        with self._db.write() as tx:
            tx.execute(insert(batches).values(id=batch_id, tenant=tenant, name=name, created_at=tx.now))
            return Batch(batch_id, tenant, name, tx.now, {})

    @patient
    def batch(self, batch_id: str, tenant: str | None = None) -> Batch:
        """A batch and how its documents stand. Raises NotFound."""
        with self._db.read() as tx:
            row = tx.execute(select(batches).where(batches.c.id == batch_id)).one_or_none()
            if row is None or (tenant is not None and row.tenant != tenant):
                raise NotFound(f"There is no batch {batch_id}.")
            counts = tx.execute(
                select(documents.c.state, func.count())
                .where(documents.c.batch_id == batch_id)
                .group_by(documents.c.state)
            )
            return Batch(row.id, row.tenant, row.name, row.created_at, {state: count for state, count in counts})

    @patient
    def queue_position(self, document_id: str) -> int | None:
        """How many jobs come before this document's, plus one; 0 once it is being worked on; None at its end.

        A guess: the queue is fair between tenants, so that positions are not a promise.
        """
        with self._db.read() as tx:
            row = _row(tx, document_id, None)
            if row.state in FINISHED:
                return None
            if row.state != DocumentState.QUEUED:
                return 0
            job = tx.execute(select(jobs.c.priority, jobs.c.created_at).where(jobs.c.key == row.job_key)).one()
            earlier = (jobs.c.priority == job.priority) & (jobs.c.created_at < job.created_at)
            ahead = select(func.count()).where(
                jobs.c.state == DocumentState.QUEUED, or_(jobs.c.priority > job.priority, earlier)
            )
            return int(tx.execute(ahead).scalar_one()) + 1


def _earlier(tx: Transaction, document_id: str, new: NewDocument) -> Row[Any] | None:
    """The document, where this accept or one with the same idempotency key was committed before."""
    row: Row[Any] | None = tx.execute(_select_documents().where(documents.c.id == document_id)).one_or_none()
    if row is not None or new.idempotency_key is None:
        return row
    same_key = (documents.c.tenant == new.tenant) & (documents.c.idempotency_key == new.idempotency_key)
    row = tx.execute(_select_documents().where(same_key)).one_or_none()
    if row is not None and (row.input_sha256, row.options) != (new.sha256, _options_json(new.options)):
        raise IdempotencyConflict(f"The idempotency key {new.idempotency_key!r} was used for another document.")
    return row


def _job_for(tx: Transaction, new: NewDocument, description: dict[str, Any]) -> tuple[str, DocumentState]:
    """The job that the document is of, and the state that it starts in: the one under way or done, or a new one."""
    base_key = _base_key(description, new.options.password)
    latest = tx.execute(
        select(jobs).where(jobs.c.base_key == base_key).order_by(jobs.c.generation.desc()).limit(1).with_for_update()
    ).one_or_none()
    if latest is not None and not new.options.force:
        state = DocumentState(latest.state)
        if state in LIVE:
            if new.priority > latest.priority:
                tx.execute(update(jobs).where(jobs.c.key == latest.key).values(priority=new.priority))
            return latest.key, state
        if state in (DocumentState.DONE, DocumentState.PARTIAL) and not latest.expired:
            return latest.key, state
    _know_tenant(tx, new.tenant)
    generation = latest.generation + 1 if latest is not None else 0
    # Never the key of a job that was removed: its artifacts may be being deleted right now.
    key = f"{base_key}-{secrets.token_hex(4)}"
    tx.execute(
        insert(jobs).values(
            key=key,
            base_key=base_key,
            generation=generation,
            state=DocumentState.QUEUED,
            stage=JobKind.PREPARE,
            turn=tx.now,
            priority=new.priority,
            tenant=new.tenant,
            input_sha256=new.sha256,
            input_name=new.name,
            size_bytes=new.size_bytes,
            description=description,
            options=_options_json(new.options),
            password=new.options.password,
            created_at=tx.now,
        )
    )
    states.add_pieces(tx, key, JobKind.PREPARE, [()])
    return key, DocumentState.QUEUED


def _know_tenant(tx: Transaction, tenant: str) -> None:
    """Tenants take turns: a new one is served first."""
    if tx.execute(select(tenants.c.tenant).where(tenants.c.tenant == tenant)).one_or_none() is not None:
        return
    with contextlib.suppress(IntegrityError), tx.connection.begin_nested():
        tx.execute(insert(tenants).values(tenant=tenant, turn=0.0))


def _base_key(description: dict[str, Any], password: str | None) -> str:
    """The password is part of the key: who does not know it must not be given what it opened."""
    text = json.dumps([description, password], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _copy_end(tx: Transaction, document_id: str, key: str, state: DocumentState) -> None:
    job = tx.execute(select(jobs.c.error_code, jobs.c.error).where(jobs.c.key == key)).one()
    ending = {"error_code": job.error_code, "error": job.error}
    tx.execute(update(documents).where(documents.c.id == document_id).values(**ending))
    states.add_events(tx, [document_id], EventKind(state), ending)


def _restart(tx: Transaction, job: Row[Any], window_pages: int) -> None:
    ended = {DocumentState.FAILED, DocumentState.PARTIAL, DocumentState.CANCELLED}
    if job.pages_total is None:
        states.queue_job(tx, job.key, ended)
        return
    states.requeue_failed_pages(tx, job.key)
    numbers = list(
        tx.execute(select(pages.c.number).where(pages.c.job_key == job.key).order_by(pages.c.number)).scalars()
    )
    missing = set(states.unfinished_pages(tx, job.key))
    # Cut as the first time: what is read together has a say in the result.
    windows = [tuple(n for n in window if n in missing) for window in plan_windows(numbers, window_pages)]
    kind = window_kind(job.options["route"])
    states.go_on(tx, job.key, ended, kind, [window for window in windows if window])


def _row(tx: Transaction, document_id: str, tenant: str | None) -> Row[Any]:
    row: Row[Any] | None = tx.execute(_select_documents().where(documents.c.id == document_id)).one_or_none()
    if row is None or (tenant is not None and row.tenant != tenant):
        raise NotFound(f"There is no document {document_id}.")
    return row


def _select_documents() -> Any:
    facts = (jobs.c.page_count, jobs.c.pages_total, jobs.c.pages_done, jobs.c.pages_failed, jobs.c.expired)
    return select(documents, jobs.c.started_at, *facts).join(jobs, jobs.c.key == documents.c.job_key)


def _document(row: Row[Any]) -> Document:
    return Document(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        sha256=row.input_sha256,
        size_bytes=row.size_bytes,
        options=options_from(row.options, None),
        priority=row.priority,
        batch_id=row.batch_id,
        webhook_url=row.webhook_url,
        job_key=row.job_key,
        state=DocumentState(row.state),
        error_code=row.error_code,
        error=row.error,
        page_count=row.page_count,
        pages_total=row.pages_total,
        pages_done=row.pages_done,
        pages_failed=row.pages_failed,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        expired=row.expired,
    )


def _page(row: Row[Any]) -> PageState:
    return PageState(
        index=row.number,
        state=PageStatus(row.state),
        route=row.route,
        why=row.why,
        seconds=row.seconds,
        warnings=tuple(row.warnings),
        error_code=row.error_code,
        error=row.error,
        finished_at=row.finished_at,
    )


def _options_json(options: ParseOptions) -> dict[str, Any]:
    return {**options.fingerprint(), "force": options.force, "encrypted": options.password is not None}


def options_from(value: dict[str, Any], password: str | None) -> ParseOptions:
    """Options as `accept` stored them."""
    return ParseOptions(
        route=Route(value["route"]),
        pages=value["pages"],
        password=password,
        quality=Quality(value["quality"]),
        force=value["force"],
    )
