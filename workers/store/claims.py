"""Work for workers: claim a piece fairly, keep its lease, report what became of it.

Which piece is next: of the job with the highest priority; of those, of the tenant with the least work under way
and then the one served longest ago; of those, of the job with the least work under way and then the one served
longest ago. So a book and a letter take turns, window by window, and so do tenants.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Row, and_, or_, select

from pipeline.document import BadPage
from pipeline.options import ParseOptions
from pipeline.page_store import PageRecord
from workers.store import statements as sql
from workers.store import states
from workers.store.database import HasDatabase, Transaction, patient
from workers.store.documents import options_from
from workers.store.models import jobs, pieces
from workers.store.statements import LEASED
from workers.store.states import Problem
from workers.store.types import LIVE, WINDOWS, Claim, JobKind, LeaseLost, window_kind

CLOCK_JUMP_FACTOR = 2.0
"""A lease that ends later than this many times its length was given before the clock was set back."""


class WorkStore(HasDatabase):
    """The part of the job store that workers use."""

    @patient
    def claim(self, kinds: Sequence[JobKind], worker: str, lease_seconds: float) -> Claim | None:
        """Take the next piece of the first of these kinds that has one; None where there is none.

        The claimer must report before `expires_at`, or `heartbeat`; else the piece is given to another.
        """
        for kind in kinds:
            if not self.has_work(kind):
                continue  # looked up without the write lock
            claim = self._claim(kind, worker, lease_seconds)
            if claim is not None:
                return claim
        return None

    def _claim(self, kind: JobKind, worker: str, lease_seconds: float) -> Claim | None:
        passed: list[str] = []
        with self._db.write() as tx:
            while (candidate := _next_job(tx, kind, passed)) is not None:
                job = states.lock_job(tx, candidate)
                piece = _next_piece(tx, job) if job.stage == kind and job.state in LIVE else None
                token = states.lease_piece(tx, piece, worker, lease_seconds) if piece else None
                if piece is None or token is None:
                    passed.append(candidate)  # another worker was faster
                    continue
                if kind is JobKind.PREPARE:
                    states.start_preparing(tx, job.key)
                tx.execute(sql.SERVE_TENANT, {"p_tenant": job.tenant, "p_now": tx.now})
                return _claim_of(tx, job, piece, worker, token, lease_seconds)
        return None

    @patient
    def has_work(self, kind: JobKind) -> bool:
        """Whether a piece of this kind waits, perhaps for its time."""
        with self._db.read() as tx:
            return bool(tx.execute(sql.HAS_WORK, {"p_kind": kind}).scalar())

    @patient
    def heartbeat(self, claims: Iterable[Claim]) -> set[str]:
        """Extend the leases of these claims; answer the tokens of those that are still held."""
        held: set[str] = set()
        wanted = list(claims)
        if not wanted:
            return held
        with self._db.write() as tx:
            for claim in wanted:
                changed = tx.execute(sql.EXTEND_LEASE, _extension(claim, tx.now)).rowcount
                if changed:
                    held.add(claim.token)
        return held

    @patient
    def unwanted(self, job_keys: Collection[str]) -> set[str]:
        """Those of these jobs that nobody wants any more: being cancelled, or ended."""
        if not job_keys:
            return set()
        with self._db.read() as tx:
            live = select(jobs.c.key).where(jobs.c.key.in_(sorted(job_keys)), jobs.c.state.in_(sorted(LIVE)))
            return set(job_keys) - set(tx.execute(live).scalars())

    @patient
    def opened(
        self,
        claim: Claim,
        *,
        page_count: int,
        source_kind: str,
        selected: Sequence[int],
        bad: Sequence[BadPage],
        windows: Sequence[tuple[int, ...]],
    ) -> None:
        """The input passed preflight: its pages are known, and these windows of them are to be done.

        Raises LeaseLost.
        """
        with self._db.write() as tx:
            piece = _locked(tx, claim)
            if piece is None:
                return
            states.end_piece(tx, piece, sql.ENDED, "done")
            facts = {"page_count": page_count, "source_kind": source_kind, "kind": window_kind(claim.options.route)}
            if not states.opened(tx, claim.job_key, selected=selected, bad=bad, windows=windows, **facts):  # type: ignore[arg-type]
                states.cancelled_if_idle(tx, claim.job_key)

    @patient
    def page_finished(self, claim: Claim, record: PageRecord) -> None:
        """A page of the claimed window is done, its artifacts stored, or it failed. Extends the lease.

        Raises LeaseLost.
        """
        with self._db.write() as tx:
            if _locked(tx, claim) is None:
                return
            tx.execute(sql.PROGRESS, _extension(claim, tx.now))
            states.finish_page(tx, claim.job_key, record)

    @patient
    def window_ended(
        self,
        claim: Claim,
        lost: Problem | None = None,
        *,
        last: PageRecord | None = None,
        crashed: bool = False,
        crashes_forgiven: int = 1,
    ) -> None:
        """The claimed window is through. Pages of it that were not reported were lost to `lost`.

        `last` is a page to report in the same transaction, as `page_finished` does.

        Of a window of several, each lost page is tried once more by itself, so that one bad page is found and
        its neighbours are not hurt by it. A lone page fails, unless its process died and that is forgiven.

        Raises LeaseLost.
        """
        with self._db.write(durable=True) as tx:
            piece = _locked(tx, claim)
            if piece is None:
                return
            if last is not None:
                states.finish_page(tx, claim.job_key, last)
            missing = [index for index in states.unfinished_pages(tx, claim.job_key) if index in set(piece.pages)]
            problem = lost or Problem("page_failed", "The page process ended without a word on this page.")
            if len(piece.pages) > 1 and missing:
                states.end_piece(tx, piece, sql.ENDED, "split", lost)
                states.add_pieces(tx, claim.job_key, claim.kind, [(index,) for index in missing])
            elif missing and crashed and piece.failures < crashes_forgiven:
                states.return_piece(tx, piece, "failed", problem, failures=1)
            else:
                states.end_piece(tx, piece, sql.PARKED if missing else sql.ENDED, "failed" if lost else "done", lost)
                for index in missing:
                    failed = PageRecord(index, None, "", 0.0, error_code=problem.code, error=problem.message)
                    states.finish_page(tx, claim.job_key, failed)
            close(tx, claim.job_key)

    @patient
    def assembled(self, claim: Claim) -> None:
        """The result is in the artifact store, whole: the job ends, and its documents with it. Raises LeaseLost."""
        with self._db.write(durable=True) as tx:
            piece = _locked(tx, claim)
            if piece is None:
                return
            states.end_piece(tx, piece, sql.ENDED, "done")
            states.finish_job(tx, claim.job_key)
            states.cancelled_if_idle(tx, claim.job_key)

    @patient
    def job_failed(self, claim: Claim, problem: Problem) -> None:
        """The job cannot be done, and trying again would not help: the input is at fault. Raises LeaseLost."""
        with self._db.write(durable=True) as tx:
            piece = _locked(tx, claim)
            if piece is None:
                return
            states.end_piece(tx, piece, sql.PARKED, "failed", problem)
            states.fail_job(tx, claim.job_key, problem)
            states.cancelled_if_idle(tx, claim.job_key)

    @patient
    def try_again(self, claim: Claim, problem: Problem, max_attempts: int) -> None:
        """The attempt failed for a reason that may pass (disk full, a store out of reach): back to the queue,
        with growing pauses; parked with its error after `max_attempts`. Raises LeaseLost.
        """
        with self._db.write() as tx:
            piece = _locked(tx, claim)
            if piece is None:
                return
            if piece.failures + 1 < max_attempts:
                delay = min(60.0, 0.5 * 2**piece.failures)
                states.return_piece(tx, piece, "failed", problem, failures=1, delay=delay)
            else:
                park(tx, piece, problem)
            close(tx, claim.job_key)

    @patient
    def give_back(self, claim: Claim) -> None:
        """The worker stops before it is done, or the job is not wanted any more. Costs no attempt."""
        with self._db.write() as tx:
            tx.execute(select(jobs.c.key).where(jobs.c.key == claim.job_key).with_for_update())
            piece = tx.execute(select(pieces).where(pieces.c.id == claim.piece_id, *_held(claim))).one_or_none()
            if piece is not None:
                leave(tx, piece, "returned")


def leave(tx: Transaction, piece: Row[Any], outcome: str, problem: Problem | None = None, losses: int = 0) -> None:
    """A held piece without its holder: back to the queue, or dropped where its job is not wanted any more.

    The job's row is locked by the caller.
    """
    state = tx.execute(select(jobs.c.state).where(jobs.c.key == piece.job_key)).scalar_one()
    if state in LIVE:
        states.return_piece(tx, piece, outcome, problem, losses=losses)
    else:
        states.end_piece(tx, piece, sql.DROPPED, outcome, problem)
    close(tx, piece.job_key)


def park(tx: Transaction, piece: Row[Any], problem: Problem) -> None:
    """Give a held piece up: its unfinished pages fail, or its whole job where it is not about pages."""
    states.end_piece(tx, piece, sql.PARKED, "parked", problem)
    if piece.kind not in WINDOWS:
        states.fail_job(tx, piece.job_key, problem)
        return
    wanted = set(piece.pages)
    for index in states.unfinished_pages(tx, piece.job_key):
        if index in wanted:
            failed = PageRecord(index, None, "", 0.0, error_code=problem.code, error=problem.message)
            states.finish_page(tx, piece.job_key, failed)


def close(tx: Transaction, key: str) -> None:
    """What may follow when a piece is not held any more."""
    states.assemble_if_ready(tx, key)
    states.cancelled_if_idle(tx, key)


def _next_job(tx: Transaction, kind: JobKind, passed: Sequence[str]) -> str | None:
    """Tenants and a tenant's jobs both come in order, so that looking is as quick with many jobs as with few."""
    best: str | None = None
    reached = -math.inf
    for tenant, priority in tx.execute(sql.NEXT_TENANTS, {"p_kind": kind}).all():
        # Jobs of a tenant's top priority may all be waiting for their time; then those below are looked at, unless
        # another tenant's come before them.
        while priority is not None and priority > reached:
            given = {"p_kind": kind, "p_tenant": tenant, "p_priority": priority}
            found = tx.execute(sql.NEXT_JOB, {**given, "p_passed": list(passed), "p_now": tx.now}).scalar_one_or_none()
            if found is not None:
                best, reached = found, priority
            priority = tx.execute(sql.NEXT_PRIORITY, given).scalar_one() if found is None else None
    return best


def _next_piece(tx: Transaction, job: Row[Any]) -> Row[Any] | None:
    found: Row[Any] | None = tx.execute(sql.NEXT_PIECE, {"p_key": job.key, "p_now": tx.now}).one_or_none()
    return found


def _claim_of(tx: Transaction, job: Row[Any], piece: Row[Any], worker: str, token: str, lease_seconds: float) -> Claim:
    numbers: tuple[int, ...] = ()
    if piece.kind in WINDOWS:
        wanted = set(piece.pages)
        numbers = tuple(index for index in states.unfinished_pages(tx, job.key) if index in wanted)
    elif piece.kind == JobKind.ASSEMBLE:
        numbers = tuple(tx.execute(sql.ALL_PAGES, {"p_key": job.key}).scalars())
    options: ParseOptions = options_from(job.options, job.password)
    return Claim(
        piece_id=piece.id,
        kind=JobKind(piece.kind),
        token=token,
        worker=worker,
        job_key=job.key,
        job=job.description,
        sha256=job.input_sha256,
        size_bytes=job.size_bytes,
        name=job.input_name,
        options=options,
        page_count=job.page_count or 0,
        source_kind=job.source_kind,
        pages=numbers,
        attempt=piece.attempts + 1,
        lease_seconds=lease_seconds,
        expires_at=tx.now + lease_seconds,
        job_started_at=job.started_at if job.started_at is not None else tx.now,
    )


def _extension(claim: Claim, now: float) -> dict[str, Any]:
    return {"p_id": claim.piece_id, "p_token": claim.token, "p_expires_at": now + claim.lease_seconds}


def _held(claim: Claim) -> tuple[Any, ...]:
    return (pieces.c.state == LEASED, pieces.c.lease_token == claim.token)


def _locked(tx: Transaction, claim: Claim) -> Row[Any] | None:
    """Lock the claim's job; the piece if it is still this worker's; None if this very report came before.

    Raises:
        LeaseLost: the piece was given to another, or the job is being cancelled or has ended.
    """
    job = tx.execute(sql.LOCK_JOB, {"p_key": claim.job_key}).one_or_none()
    piece = tx.execute(sql.HELD_PIECE, {"p_id": claim.piece_id, "p_token": claim.token}).one_or_none()
    if piece is not None and piece.state in (sql.ENDED, sql.PARKED):
        return None  # the answer to the first report was lost; the report was taken
    if job is None or piece is None or piece.state != LEASED:
        raise LeaseLost("The work was given to another worker.")
    if job.state not in LIVE:
        raise LeaseLost("Nobody wants the job any more.")
    return piece


def expired(now: float) -> Any:
    """Leases that are over, also those that a clock set back would keep alive for long."""
    jumped = pieces.c.lease_expires_at - now > pieces.c.lease_seconds * CLOCK_JUMP_FACTOR
    return and_(pieces.c.state == LEASED, or_(pieces.c.lease_expires_at <= now, jumped))
