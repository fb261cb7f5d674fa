"""Takes away what nobody needs: results past their time or budget, inputs without a document, leftovers."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from workers.artifacts.base import ArtifactInfo, ArtifactStore

if TYPE_CHECKING:
    from workers.store.job_store import JobStore

log = logging.getLogger(__name__)

_LEADER = "sweeper"
_BATCH = 100


class SweepSettings(BaseSettings):
    """How long and how much is kept."""

    model_config = SettingsConfigDict(env_prefix="PAGEMILL_")

    result_ttl_hours: float = Field(
        720, gt=0, description="Results are kept this long after their document ended, hours."
    )
    artifacts_budget_gb: float = Field(
        0,
        ge=0,
        description="Most that artifacts may take, GiB; beyond it the results that ended first go. 0 sets no bound.",
    )
    sweep_seconds: float = Field(600, gt=0, description="Time between two sweeps of the artifacts, seconds.")
    sweep_grace_seconds: float = Field(
        3600,
        gt=0,
        description="What was written less than this ago is never swept, seconds. Longer than any pause in an upload.",
    )


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep took away.

    Attributes:
        expired_jobs: whose results were past their time, or over the budget.
        orphan_jobs: artifacts of jobs that the store does not know any more.
        inputs: that no kept document refers to.
        leftovers: of interrupted writes.
        kept_bytes: size of what is left.
    """

    expired_jobs: int
    orphan_jobs: int
    inputs: int
    leftovers: int
    kept_bytes: int


class Sweeper:
    """Sweeps one artifact store by what its job store says. Several may run; one at a time does the work.

    Nothing that an unfinished or kept document refers to is touched. A job is marked as expired before its first
    artifact goes, so that no new document can share it; an input that is submitted again while it is being
    swept is noticed by its new time and stays.
    """

    def __init__(self, store: JobStore, artifacts: ArtifactStore, settings: SweepSettings | None = None) -> None:
        self._store, self._artifacts = store, artifacts
        self._settings = settings or SweepSettings()
        self._name = f"{socket.gethostname()}-{os.getpid()}-{id(self):x}"

    def run(self, stop: threading.Event) -> None:
        """Sweep every `sweep_seconds` until `stop` is set. A sweep that fails is logged; the next one comes."""
        pause = self._settings.sweep_seconds
        while not stop.is_set():
            try:
                # Led for as long as the pause: others who wake meanwhile find it swept.
                if self._store.lead(_LEADER, self._name, 2 * pause):
                    report = self.sweep()
                    log.info("swept artifacts: %s", report)
            except Exception:
                log.exception("the artifacts could not be swept")
            stop.wait(pause)

    def sweep(self) -> SweepReport:
        """Sweep once.

        Raises:
            ArtifactError: the artifact store does not answer. Database errors as of the job store.
        """
        # The file systems' clock, which wrote the times of artifacts.
        before = datetime.now(UTC) - timedelta(seconds=self._settings.sweep_grace_seconds)
        leftovers = self._artifacts.sweep(before)
        expired = self._expire_old()
        jobs, inputs = self._survey()
        expired += self._expire_over_budget(jobs, inputs)
        orphans = self._remove_orphan_jobs(jobs, before)
        removed = self._remove_inputs(inputs, before)
        kept = sum(job.size for job in jobs.values()) + sum(info.size for info in inputs.values())
        return SweepReport(expired, orphans, removed, leftovers, kept)

    def _expire_old(self) -> int:
        count = 0
        finished_before = self._store.now() - 3600 * self._settings.result_ttl_hours
        while keys := self._store.expirable_jobs(finished_before, _BATCH):
            expired = [key for key in keys if self._expire(key)]
            count += len(expired)
            if not expired:
                break
        return count

    def _expire(self, job_key: str) -> bool:
        if not self._store.expire(job_key):
            return False  # taken up again just now
        self._artifacts.delete_prefix(f"jobs/{job_key}/")
        return True

    def _survey(self) -> tuple[dict[str, _JobArtifacts], dict[str, ArtifactInfo]]:
        """What lies in the store: jobs by key, inputs by hash."""
        jobs: dict[str, _JobArtifacts] = {}
        for info in self._artifacts.list("jobs/"):
            key = info.key.split("/")[1]
            known = jobs.get(key, _JobArtifacts(0, info.modified))
            jobs[key] = _JobArtifacts(known.size + info.size, max(known.modified, info.modified))
        return jobs, {info.key.split("/")[1]: info for info in self._artifacts.list("inputs/")}

    def _expire_over_budget(self, jobs: dict[str, _JobArtifacts], inputs: dict[str, ArtifactInfo]) -> int:
        budget = self._settings.artifacts_budget_gb * 2**30
        count = 0
        while budget:
            kept = self._kept_inputs()
            # Inputs without a document go by themselves.
            taken = sum(job.size for job in jobs.values())
            taken += sum(info.size for sha256, info in inputs.items() if sha256 in kept)
            if taken <= budget:
                break
            # The longest ended go first, by tens: freed inputs are known only after a look at all documents.
            expired = [key for key in self._store.expirable_jobs(limit=10) if self._expire(key)]
            if not expired:
                log.warning("artifacts take %.1f GiB, over the budget, and none may go", taken / 2**30)
                break
            for key in expired:
                jobs.pop(key, None)
            count += len(expired)
        return count

    def _remove_orphan_jobs(self, jobs: dict[str, _JobArtifacts], before: datetime) -> int:
        """Artifacts of jobs that were removed or expired by someone who died before the artifacts were gone."""
        orphans = [key for key, job in jobs.items() if job.modified < before and not self._store.job_known(key)]
        for key in orphans:
            self._artifacts.delete_prefix(f"jobs/{key}/")
            del jobs[key]
        return len(orphans)

    def _remove_inputs(self, inputs: dict[str, ArtifactInfo], before: datetime) -> int:
        old = [sha256 for sha256, info in inputs.items() if info.modified < before]
        kept = self._kept_inputs() if old else set()
        count = 0
        for sha256 in old:
            if sha256 in kept or self._store.input_in_use(sha256):
                continue
            if self._artifacts.delete_if_unchanged(inputs[sha256]):
                del inputs[sha256]
                count += 1
        return count

    def _kept_inputs(self) -> set[str]:
        """Inputs of documents that are unfinished, or whose results are kept: those can be shown and tried again."""
        return {sha256 for sha256, expired in self._documents() if not expired}

    def _documents(self) -> Iterator[tuple[str, bool]]:
        cursor: str | None = None
        while True:
            page = self._store.list_documents(cursor=cursor, limit=500)
            yield from ((document.sha256, document.expired) for document in page.documents)
            cursor = page.next_cursor
            if cursor is None:
                return


@dataclass(frozen=True, slots=True)
class _JobArtifacts:
    """Bytes of a job's artifacts, and when the newest was written."""

    size: int
    modified: datetime
