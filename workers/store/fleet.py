"""The workers that are alive, the work that lost its worker, and how much there is to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from workers.store import claims
from workers.store import statements as sql
from workers.store.database import HasDatabase, patient
from workers.store.models import documents, jobs, leases, pages, pieces, workers
from workers.store.statements import LEASED
from workers.store.states import Problem
from workers.store.types import FINISHED, UNFINISHED, DocumentState, Fleet, JobKind, PageStatus, WorkerInfo


@dataclass(frozen=True, slots=True)
class Presence:
    """What a worker says of itself.

    Attributes:
        place: where its process id means something: one boot of one machine, one namespace of processes.
        process_started_at: tells it from a later process with the same id, seconds since the epoch.
    """

    id: str
    host: str
    place: str
    pid: int
    process_started_at: float
    queues: tuple[str, ...]
    concurrency: int


class FleetStore(HasDatabase):
    """The part of the job store that the reaper, health checks and metrics use."""

    @patient
    def worker_seen(self, presence: Presence) -> None:
        """Register a worker, or renew it."""
        with self._db.write() as tx:
            if tx.execute(update(workers).where(workers.c.id == presence.id).values(seen_at=tx.now)).rowcount:
                return
            tx.execute(
                insert(workers).values(
                    id=presence.id,
                    host=presence.host,
                    place=presence.place,
                    pid=presence.pid,
                    process_started_at=presence.process_started_at,
                    queues=list(presence.queues),
                    concurrency=presence.concurrency,
                    started_at=tx.now,
                    seen_at=tx.now,
                )
            )

    @patient
    def worker_left(self, worker_id: str) -> None:
        """Forget a worker that stops."""
        with self._db.write() as tx:
            tx.execute(delete(workers).where(workers.c.id == worker_id))

    @patient
    def workers(self, alive_within: float | None = 30.0) -> list[WorkerInfo]:
        """Workers seen within the last seconds; None for all that the store knows."""
        with self._db.read() as tx:
            query = select(workers).order_by(workers.c.started_at)
            if alive_within is not None:
                query = query.where(workers.c.seen_at > tx.now - alive_within)
            return [_worker(row) for row in tx.execute(query)]

    @patient
    def neighbours(self, place: str) -> list[Presence]:
        """Registered workers of the same place, whose processes the asker can look for."""
        with self._db.read() as tx:
            rows = tx.execute(select(workers).where(workers.c.place == place))
            return [
                Presence(r.id, r.host, r.place, r.pid, r.process_started_at, tuple(r.queues), r.concurrency)
                for r in rows
            ]

    @patient
    def lead(self, name: str, owner: str, seconds: float) -> bool:
        """Take or renew a lease by name; False while another holds it."""
        with self._db.write() as tx:
            over = or_(
                leases.c.owner == owner,
                leases.c.expires_at <= tx.now,
                leases.c.expires_at > tx.now + seconds * claims.CLOCK_JUMP_FACTOR,
            )
            values = {"owner": owner, "expires_at": tx.now + seconds}
            if tx.execute(update(leases).where(leases.c.name == name, over).values(**values)).rowcount:
                return True
            if tx.execute(select(leases.c.name).where(leases.c.name == name)).first() is not None:
                return False
            try:
                with tx.connection.begin_nested():
                    tx.execute(insert(leases).values(name=name, **values))
            except IntegrityError:
                return False
            return True

    @patient
    def stop_leading(self, name: str, owner: str) -> None:
        with self._db.write() as tx:
            tx.execute(delete(leases).where(leases.c.name == name, leases.c.owner == owner))

    @patient
    def reap(self, max_losses: int, dead_workers: Collection[str] = ()) -> int:
        """Return pieces whose lease is over, or whose worker is known to be dead, to the queue.

        One that lost its worker `max_losses` times in a row without finishing a page is parked with an error.
        Answers how many were reaped.
        """
        with self._db.read() as tx:
            over = or_(claims.expired(tx.now), (pieces.c.state == LEASED) & pieces.c.lease_owner.in_(dead_workers))
            found = tx.execute(select(pieces.c.id, pieces.c.job_key, pieces.c.lease_token).where(over)).all()
        return sum(self._reap_one(row, max_losses, dead_workers) for row in found)

    @patient
    def _reap_one(self, found: Row[Any], max_losses: int, dead_workers: Collection[str]) -> bool:
        with self._db.write() as tx:
            tx.execute(select(jobs.c.key).where(jobs.c.key == found.job_key).with_for_update())
            over = or_(claims.expired(tx.now), (pieces.c.state == LEASED) & pieces.c.lease_owner.in_(dead_workers))
            same = (pieces.c.id == found.id) & (pieces.c.lease_token == found.lease_token)
            piece = tx.execute(select(pieces).where(same, over)).one_or_none()
            if piece is None:
                return False  # its worker was late, but not dead
            if piece.losses + 1 < max_losses:
                claims.leave(tx, piece, "lost", losses=1)
                return True
            problem = Problem("worker_lost", "The workers that took this work died or fell silent, again and again.")
            claims.park(tx, piece, problem)
            claims.close(tx, piece.job_key)
            return True

    @patient
    def forget_workers(self, unseen_for: float, dead_workers: Collection[str] = ()) -> None:
        """Drop registrations of workers that are dead or have been silent for long."""
        with self._db.write() as tx:
            gone = or_(workers.c.seen_at < tx.now - unseen_for, workers.c.id.in_(dead_workers))
            tx.execute(delete(workers).where(gone))

    @patient
    def counts(self) -> Fleet:
        """Documents by state; pieces queued and leased by kind; pages waiting in all jobs."""
        with self._db.read() as tx:
            by_state = tx.execute(select(documents.c.state, func.count()).group_by(documents.c.state)).all()
            work = tx.execute(
                select(jobs.c.stage, func.sum(jobs.c.queued), func.sum(jobs.c.leased))
                .where(jobs.c.state.in_(sorted(UNFINISHED)))
                .group_by(jobs.c.stage)
            ).all()
            waiting = tx.execute(
                select(func.sum(jobs.c.pages_total - jobs.c.pages_done - jobs.c.pages_failed)).where(
                    jobs.c.state == DocumentState.RUNNING
                )
            ).scalar()
        queued = {kind: int(count or 0) for kind, count, _ in work}
        leased = {kind: int(count or 0) for kind, _, count in work}
        return Fleet({state: count for state, count in by_state}, queued, leased, int(waiting or 0))

    @patient
    def claimable(self) -> dict[JobKind, int]:
        """Pieces that a worker could claim now, by kind."""
        with self._db.read() as tx:
            rows = tx.execute(sql.CLAIMABLE, {"p_now": tx.now})
            return {JobKind(kind): int(count) for kind, count in rows if count}

    @patient
    def pages_per_second(self, window_seconds: float = 60.0) -> float:
        """Pages finished by all workers in the last seconds, per second."""
        with self._db.read() as tx:
            count = tx.execute(
                select(func.count())
                .select_from(pages)
                .join(jobs, jobs.c.key == pages.c.job_key)
                .where(
                    pages.c.state != PageStatus.QUEUED,
                    pages.c.finished_at > tx.now - window_seconds,
                    or_(jobs.c.finished_at.is_(None), jobs.c.finished_at > tx.now - window_seconds),
                )
            ).scalar_one()
            return float(count) / window_seconds

    def ping(self) -> None:
        """One query, without patience: raises at once where the database does not answer."""
        with self._db.read():
            return

    # For the sweeper of artifacts.

    @patient
    def expirable_jobs(self, finished_before: float | None = None, limit: int = 100) -> list[str]:
        """Keys of ended jobs whose artifacts are still there, the longest ended first."""
        query = select(jobs.c.key).where(jobs.c.state.in_(sorted(FINISHED)), jobs.c.expired.is_(False))
        if finished_before is not None:
            query = query.where(jobs.c.finished_at < finished_before)
        with self._db.read() as tx:
            return list(tx.execute(query.order_by(jobs.c.finished_at).limit(limit)).scalars())

    @patient
    def expire(self, job_key: str) -> bool:
        """Mark an ended job's artifacts as gone, before they are deleted; False where it is not ended."""
        with self._db.write(durable=True) as tx:
            changed = tx.execute(
                update(jobs).where(jobs.c.key == job_key, jobs.c.state.in_(sorted(FINISHED))).values(expired=True)
            )
            return bool(changed.rowcount)

    @patient
    def job_known(self, job_key: str) -> bool:
        """Whether `jobs/<job_key>/...` belongs to a job whose artifacts are kept."""
        with self._db.read() as tx:
            kept = select(jobs.c.key).where(jobs.c.key == job_key, jobs.c.expired.is_(False))
            return tx.execute(kept).first() is not None

    @patient
    def input_in_use(self, sha256: str) -> bool:
        """Whether an unfinished job still reads `inputs/<sha256>`."""
        with self._db.read() as tx:
            used = select(jobs.c.key).where(jobs.c.input_sha256 == sha256, jobs.c.state.in_(sorted(UNFINISHED)))
            return tx.execute(used).first() is not None

    @patient
    def now(self) -> float:
        """The store's time, seconds since the epoch."""
        with self._db.read() as tx:
            return tx.now


def _worker(row: Row[Any]) -> WorkerInfo:
    return WorkerInfo(row.id, row.host, row.pid, tuple(row.queues), row.concurrency, row.started_at, row.seen_at)
