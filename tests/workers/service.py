"""A service in a folder: submit files, wait, and look whether everything is as it must be afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from pipeline.options import ParseOptions
from tests.conftest import page_process_pids
from tests.workers.servers import wait_for
from workers.artifacts import ArtifactStore, artifact_store
from workers.settings import ServiceSettings
from workers.store import Document, DocumentState, JobStore, NewDocument
from workers.store.types import FINISHED

ROOT = Path(__file__).parents[2]
QUICK = {
    "lease_seconds": 4.0,
    "heartbeat_seconds": 0.5,
    "cancel_poll_seconds": 0.1,
    "drain_seconds": 10.0,
    "poll_seconds": 0.1,
    "crashes_forgiven": 20,
    "max_losses": 100,
}
"""Settings that let a test see in seconds what takes a minute in production."""


class Service:
    """The stores of one service, as a client sees them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = ServiceSettings(data_dir=folder, **{**QUICK, **settings})
        self.folder = folder
        self._foreign = page_process_pids()  # those that other tests keep
        folder.mkdir(parents=True, exist_ok=True)
        self.store: JobStore = JobStore.open(self.settings.database())
        self.artifacts: ArtifactStore = artifact_store(self.settings.artifacts())

    def submit(self, path: Path, options: ParseOptions | None = None, **fields: Any) -> Document:
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        self.artifacts.put(f"inputs/{sha256}", data)
        new = NewDocument("", path.name, sha256, len(data), options=options or ParseOptions(), **fields)
        return self.store.accept(new)

    def state(self, document: Document) -> DocumentState:
        return self.store.document(document.id).state

    def wait(self, *documents: Document, seconds: float = 120.0) -> list[Document]:
        """Until they are finished."""
        wait_for(
            lambda: all(self.state(document) in FINISHED for document in documents),
            f"documents are finished: {[str(self.state(d)) for d in documents]}",
            seconds,
        )
        return [self.store.document(document.id) for document in documents]

    def result(self, document: Document, name: str = "document.md") -> bytes:
        with self.artifacts.open(f"jobs/{document.job_key}/result/{name}") as file:
            return file.read()

    def page_attempts(self, document: Document) -> list[int]:
        """How often each page was reported as finished."""
        pages = [e.data["page"] for e in self.store.events_after(document.id, limit=10_000) if e.kind == "page"]
        return [pages.count(page) for page in range(1, (self.store.document(document.id).pages_total or 0) + 1)]

    def assert_clean(self, documents: Iterable[Document], *, workers_stopped: bool = True) -> None:
        """Every document ended once; no lease, no temporary file, no page process is left."""
        for document in documents:
            events = self.store.events_after(document.id, limit=10_000)
            ends = [event.kind for event in events if event.kind in set(map(str, FINISHED))]
            assert len(ends) == 1, f"{document.name} ended {ends}"
            whole = self.state(document) in (DocumentState.DONE, DocumentState.PARTIAL)
            assert set(self.page_attempts(document)) <= ({1} if whole else {0, 1})
        assert self.store.counts().leased == {} and self.store.counts().queued == {}
        leftovers = [
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and (path.suffix == ".part" or {"scratch", ".working"} & set(path.parts))
        ]
        if workers_stopped:
            assert leftovers == []
            assert self.page_processes() == []

    def page_processes(self) -> list[int]:
        """Those that were started since this service was made."""
        return sorted(set(page_process_pids()) - set(self._foreign))

    def close(self) -> None:
        self.store.close()


class WorkerProcess:
    """`pagemill worker`, started by a test."""

    def __init__(self, service: Service, *options: str, concurrency: int = 1) -> None:
        settings = service.settings.model_dump(mode="json", exclude_none=True)
        settings |= {"database_url": service.settings.database(), "artifacts_url": service.settings.artifacts()}
        environment = {f"PAGEMILL_{name.upper()}": str(value) for name, value in settings.items()}
        self.log = service.folder / f"worker-{os.urandom(4).hex()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "api.cli.main", "worker", "--concurrency", str(concurrency), *options],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "worker is up" in self.log.read_text()

    def page_processes(self) -> list[int]:
        try:
            return page_process_pids(self.process.pid)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL, as the machine's memory killer sends it; its page processes must notice by themselves."""
        children = self.page_processes()
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not any(_runs(pid) for pid in children), "page processes follow their worker")

    def kill_tree(self) -> None:
        victims = [*self.page_processes(), self.process.pid]
        for pid in victims:
            _kill(pid)
        self.process.wait()

    def kill_a_page_process(self) -> bool:
        children = self.page_processes()
        for pid in children[:1]:
            _kill(pid)
        return bool(children)

    def terminate(self, seconds: float = 60.0) -> int:
        """SIGTERM, and wait for its end; answers its exit code."""
        children = self.page_processes()
        self.process.terminate()
        code = self.process.wait(seconds)
        wait_for(lambda: not any(_runs(pid) for pid in children), "page processes end with their worker")
        return code


@contextmanager
def worker(service: Service, *options: str, concurrency: int = 1) -> Iterator[WorkerProcess]:
    """A worker for the time of the `with` block, then drained."""
    running = WorkerProcess(service, *options, concurrency=concurrency)
    try:
        wait_for(running.is_up, "the worker is up", 60)
        yield running
    finally:
        if running.process.poll() is None:
            running.terminate()


def manifest(service: Service, document: Document) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(service.result(document, "manifest.json"))
    return value


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
