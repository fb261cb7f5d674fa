"""What a sweep takes away, and what it never touches: a real job store on SQLite, artifacts in a folder."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import PageRecord, ParseOptions, Route
from workers.artifacts import receive_file
from workers.artifacts.folder import FolderStore
from workers.artifacts.sweeper import Sweeper, SweepSettings
from workers.store import JobStore
from workers.store.states import Problem
from workers.store.types import Document, DocumentState, JobKind, NewDocument

HOUR = 3600.0


class World:
    """A job store whose clock the test moves, and artifacts that it can make older."""

    def __init__(self, folder: Path) -> None:
        self.clock = time.time()
        self.store = JobStore.open(f"sqlite:///{folder}/store.db", clock=lambda: self.clock)
        self.artifacts = FolderStore(folder / "artifacts")

    def submit(self, content: bytes, **options: object) -> Document:
        received = receive_file(self.artifacts, io.BytesIO(content))
        new = NewDocument("", "a.pdf", received.sha256, received.size, ParseOptions(**options))  # type: ignore[arg-type]
        return self.store.accept(new)

    def work_off(self, size: int = 100) -> None:
        """Do all the work there is, as workers do: every job gets a page and a result of `size` bytes."""
        while (claim := self.store.claim(list(JobKind), "worker", 60)) is not None:
            if claim.kind is JobKind.PREPARE:
                self.store.opened(claim, page_count=1, source_kind="pdf", selected=[0], bad=[], windows=[(0,)])
            elif claim.kind is JobKind.PAGE:
                self.artifacts.put(f"jobs/{claim.job_key}/pages/00001.json", b"{}")
                self.store.page_finished(claim, PageRecord(0, Route.FLASH, "", 0.1))
                self.store.window_ended(claim)
            else:
                self.artifacts.put(f"jobs/{claim.job_key}/result/document.md", b"x" * size)
                self.store.assembled(claim)

    def age_artifacts(self, seconds: float) -> None:
        for path in self.artifacts.root.rglob("*"):
            if path.is_file():
                then = path.stat().st_mtime - seconds
                os.utime(path, (then, then))

    def sweeper(self, **settings: float) -> Sweeper:
        return Sweeper(self.store, self.artifacts, SweepSettings(**settings))  # type: ignore[arg-type]

    def has_result(self, document: Document) -> bool:
        return self.artifacts.exists(f"jobs/{document.job_key}/result/document.md")

    def has_input(self, document: Document) -> bool:
        return self.artifacts.exists(f"inputs/{document.sha256}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.store.close()


def test_results_go_when_their_time_is_over_and_the_document_says_so(world: World) -> None:
    old = world.submit(b"old")
    world.work_off()
    world.clock += 10 * HOUR
    young = world.submit(b"young")
    world.work_off()
    world.age_artifacts(2 * HOUR)
    world.clock += HOUR
    report = world.sweeper(result_ttl_hours=5).sweep()
    assert (report.expired_jobs, report.inputs) == (1, 1)
    assert world.store.document(old.id).expired
    assert list(world.artifacts.list(f"jobs/{old.job_key}/")) == []
    assert not world.has_input(old)
    assert not world.store.document(young.id).expired
    assert world.has_result(young) and world.has_input(young)


def test_what_a_live_job_needs_stays_however_old_it_is(world: World) -> None:
    queued = world.submit(b"queued")
    running = world.submit(b"running")
    world.artifacts.put(f"jobs/{running.job_key}/pages/00001.json", b"{}")
    world.age_artifacts(10_000 * HOUR)
    world.clock += 10_000 * HOUR
    report = world.sweeper(result_ttl_hours=1, artifacts_budget_gb=1e-9).sweep()
    assert (report.expired_jobs, report.orphan_jobs, report.inputs) == (0, 0, 0)
    assert world.has_input(queued) and world.has_input(running)
    world.work_off()
    assert world.store.document(queued.id).state is DocumentState.DONE


def test_the_budget_takes_the_results_that_ended_first(world: World) -> None:
    documents = []
    for number in range(15):
        documents.append(world.submit(bytes([number])))
        world.work_off(size=1000)
        world.clock += 1
    report = world.sweeper(artifacts_budget_gb=6 * 1010 / 2**30).sweep()
    assert report.expired_jobs == 10
    assert report.kept_bytes <= 6 * 1010
    assert [world.has_result(document) for document in documents] == [False] * 10 + [True] * 5


def test_a_result_that_expired_is_made_anew_for_a_new_document(world: World) -> None:
    old = world.submit(b"same")
    world.work_off()
    world.clock += 10 * HOUR
    world.sweeper(result_ttl_hours=1).sweep()
    again = world.submit(b"same")
    assert again.job_key != old.job_key
    world.work_off()
    assert world.has_result(again)


def test_an_input_that_is_submitted_again_during_the_sweep_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    old = world.submit(b"same")
    world.work_off()
    world.age_artifacts(2 * HOUR)
    world.clock += 10 * HOUR
    sweeper = world.sweeper(result_ttl_hours=1)
    again: list[Document] = []
    in_use = world.store.input_in_use

    def submitted_right_after_the_question(sha256: str) -> bool:
        answer = in_use(sha256)
        again.append(world.submit(b"same"))
        return answer

    monkeypatch.setattr(world.store, "input_in_use", submitted_right_after_the_question)
    assert sweeper.sweep().inputs == 0
    assert again and world.has_input(old)
    world.work_off()
    assert world.has_result(again[0])


def test_uploads_without_a_document_and_artifacts_of_unknown_jobs_go_after_the_grace(world: World) -> None:
    abandoned = hashlib.sha256(b"abandoned").hexdigest()
    world.artifacts.put(f"inputs/{abandoned}", b"abandoned")
    world.artifacts.put("jobs/unknown/pages/00001.json", b"{}")
    interrupted = world.artifacts.writer()
    interrupted.write(b"half")
    sweeper = world.sweeper(sweep_grace_seconds=HOUR)
    assert (sweeper.sweep().inputs, sweeper.sweep().orphan_jobs, sweeper.sweep().leftovers) == (0, 0, 0)
    world.age_artifacts(2 * HOUR)
    report = sweeper.sweep()
    assert (report.inputs, report.orphan_jobs, report.leftovers) == (1, 1, 1)
    assert [path for path in world.artifacts.root.rglob("*") if path.is_file()] == []


def test_a_removed_document_leaves_nothing(world: World) -> None:
    document = world.submit(b"removed")
    world.work_off()
    world.store.remove(document.id)
    world.age_artifacts(2 * HOUR)
    world.sweeper().sweep()
    assert list(world.artifacts.list()) == []


def test_the_input_of_a_failed_document_is_kept_for_another_try(world: World) -> None:
    document = world.submit(b"bad")
    claim = world.store.claim([JobKind.PREPARE], "worker", 60)
    assert claim is not None
    world.store.job_failed(claim, Problem("damaged", "It is damaged."))
    world.age_artifacts(2 * HOUR)
    world.sweeper().sweep()
    assert world.has_input(document)
    world.store.retry(document.id)
    world.work_off()
    assert world.has_result(document)
