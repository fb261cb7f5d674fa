"""A worker: Celery consumers in threads, page processes, heartbeat, reaper. Embedded in a program, or one itself."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from uuid import uuid4

from celery.concurrency.thread import TaskPool
from celery.worker import WorkController

from pipeline.folder_lock import FolderLock
from pipeline.parse import page_processes
from pipeline.processes import Limits, PageProcesses, Task
from pipeline.settings import settings as pipeline_settings
from pipeline.steps import model_threads
from workers.artifacts import ArtifactStore, artifact_store
from workers.celery_app import celery_app, register
from workers.holdings import Holdings
from workers.memory import MemoryGate, Together
from workers.presence import this_process
from workers.reaper import Reaper
from workers.settings import ServiceSettings
from workers.store import JobKind, JobStore
from workers.store.types import WINDOWS
from workers.tasks.context import WorkContext
from workers.tasks.loop import work
from workers.tokens import Tokens
from workers.upkeep import Upkeep

log = logging.getLogger(__name__)

_STOP_SECONDS = 15.0
_WARM_UP_SECONDS = 120.0
_AHEAD = {JobKind.ASSEMBLE: 1}
"""Pieces claimed beyond the processes there are, so that none waits while results are written to the disk. Not of
pages: a letter would wait for more windows of the book before it."""


class Worker:
    """One worker process' threads and children.

    Args:
        settings: of the service. Without `redis_url` the broker is in this process.
        queues: kinds of work to do.
        concurrency: pages in work at the same time; None takes one for each CPU (PAGEMILL_WORKERS).
        store, artifacts: opened ones to use; None opens those of the settings.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        queues: Sequence[JobKind] = tuple(JobKind),
        concurrency: int | None = None,
        store: JobStore | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        embedded = not settings.redis_url
        if embedded:
            # The broker's memory is that of the whole process; each worker has queues of its own in it.
            settings = settings.model_copy(update={"queue_prefix": f"{settings.queue_prefix}{uuid4().hex[:8]}."})
        self.settings = settings
        self._queues = tuple(queues)
        self._concurrency = concurrency or pipeline_settings().worker_count()
        self._given_store, self._given_artifacts = store, artifacts
        self._embedded = embedded
        self._stack = ExitStack()
        self._consumers: list[_Consumer] = []
        self._context: WorkContext | None = None
        self._tokens: Tokens | None = None

    def start(self) -> None:
        """Come up: from here on, work is claimed. Raises what the stores raise when they cannot be opened."""
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def _start(self) -> None:
        settings, stack = self.settings, self._stack
        store = self._given_store or stack.enter_context(JobStore.open(settings.database()))
        artifacts = self._given_artifacts or artifact_store(settings.artifacts())
        presence = this_process(tuple(map(str, self._queues)), self._concurrency)
        lock = _own_scratch(settings, presence.id)
        stack.callback(lock.release, remove=True)
        reaper = Reaper(store, settings, presence)
        tokens = Tokens(settings, store, regularly=lambda: self._embedded or reaper.leads)
        holdings = Holdings(store, settings, presence)
        sizes = {kind: self._at_once(kind) for kind in self._queues}
        pools = {kind: stack.enter_context(_pool(kind, sizes[kind])) for kind in self._queues}
        ahead = {kind: size + _AHEAD.get(kind, 0) for kind, size in sizes.items()}
        page_pools = Together([pool for kind, pool in pools.items() if kind in WINDOWS] or list(pools.values()))
        config = pipeline_settings()
        context = WorkContext(
            worker=presence.id,
            store=store,
            artifacts=artifacts,
            settings=settings,
            pipeline=config,
            processes=pools,
            gate=MemoryGate(page_pools, settings.memory_mb * 2**20, config.page_memory_mb * 2**20),
            holdings=holdings,
            scratch=lock.folder,
            wake=tokens.wake,
            model_threads=model_threads(self._concurrency),
        )
        self._context, self._tokens = context, tokens
        holdings.start()
        stack.callback(holdings.stop)
        reaper.start()
        stack.callback(reaper.stop)
        for kind in self._queues:
            consumer = _Consumer(settings, kind, context, ahead[kind])
            self._consumers.append(consumer)
            consumer.start()
        stack.enter_context(Upkeep(store, artifacts))
        tokens.start()
        stack.callback(tokens.stop)
        tokens.wake()
        _warm_up(pools, context.model_threads)

    def _at_once(self, kind: JobKind) -> int:
        """Processes for a kind of work."""
        if kind is JobKind.RECOGNISE:
            return self.settings.recognise_processes or self._concurrency
        return self._concurrency if kind is JobKind.PAGE else 1

    def stop(self) -> None:
        """Claim nothing more, give the pages in work `drain_seconds`, hand back the rest, end every child."""
        context = self._context
        if context is None:
            return
        context.draining.set()
        patience = threading.Thread(target=self._lose_patience, args=(context,), daemon=True)
        patience.start()
        for consumer in self._consumers:
            consumer.ask_to_stop()
        for consumer in self._consumers:
            consumer.join(self.settings.drain_seconds + _STOP_SECONDS)
        self._consumers.clear()
        self._context = None
        self._stack.close()

    def _lose_patience(self, context: WorkContext) -> None:
        threading.Event().wait(self.settings.drain_seconds)
        context.holdings.stop_all()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class EmbeddedRuntime(Worker):
    """The service inside this program: every kind of work, the broker in memory, no Redis.

    Args:
        settings: of the service; its `redis_url` is not used.
        concurrency: pages in work at the same time; None takes one for each CPU.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        concurrency: int | None = None,
        *,
        store: JobStore | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        embedded = settings.model_copy(update={"redis_url": None})
        super().__init__(embedded, concurrency=concurrency, store=store, artifacts=artifacts)


def run_worker(
    settings: ServiceSettings, queues: Sequence[JobKind] = tuple(JobKind), concurrency: int | None = None
) -> None:
    """Work until SIGTERM or SIGINT; then drain and return. A second signal hands back at once."""
    stop = threading.Event()
    worker = Worker(settings, queues=queues, concurrency=concurrency)

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set() and worker._context is not None:
            worker._context.holdings.stop_all()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    with worker:
        log.info("worker is up: %s", ", ".join(map(str, queues)))
        while not stop.wait(1.0):
            pass
        log.info("worker drains")


class _Consumer:
    """One Celery worker in a thread: one queue, with threads of its own, so that no kind of work waits for another."""

    def __init__(self, settings: ServiceSettings, kind: JobKind, context: WorkContext, concurrency: int) -> None:
        self._app = celery_app(settings, [kind])
        register(self._app, kind, lambda: work(context, [kind]))
        self._app.finalize()
        self._controller: Any = WorkController(
            app=self._app,
            hostname=f"{kind}@{context.worker}",
            pool_cls=_Threads,
            concurrency=concurrency,
            # Each would take the process' one event loop; the plain loop waits on its own connection.
            use_eventloop=False,
            without_mingle=True,
            without_gossip=True,
            without_heartbeat=True,
            loglevel="WARNING",
        )
        self._thread = threading.Thread(target=self._controller.start, name=f"celery-{kind}", daemon=True)
        self._stopper = threading.Thread(target=self._controller.stop, name=f"celery-stop-{kind}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopper.start()

    def join(self, seconds: float) -> None:
        self._stopper.join(seconds)
        self._thread.join(1.0)
        self._app.close()


class _Threads(TaskPool):
    """Celery's pool of threads, which looks tasks up in the thread's current application: let that be this one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.executor: ThreadPoolExecutor = ThreadPoolExecutor(
            self.limit, thread_name_prefix="work", initializer=self.app.set_current
        )


def _pool(kind: JobKind, size: int) -> PageProcesses:
    if kind in WINDOWS:
        return page_processes(size)
    config = pipeline_settings()
    limits = Limits(memory_bytes=config.page_memory_mb * 2**20, recycle_after=config.recycle_after_pages)
    return PageProcesses(size, limits)


def _warm_up(pools: dict[JobKind, PageProcesses], threads: int) -> None:
    """Load libraries in every page process, beside whatever work already waits."""
    functions = {JobKind.PREPARE: "opening", JobKind.PAGE: "pages", JobKind.ASSEMBLE: "assembly"}
    for kind, pool in pools.items():
        if kind not in functions:
            continue  # made when the first document of the route vlm comes
        task = Task(f"pipeline.warm_up:{functions[kind]}", threads, seconds=_WARM_UP_SECONDS)
        for _ in range(pool.size):
            pool.submit(task, lambda value: None)


def _own_scratch(settings: ServiceSettings, worker: str) -> FolderLock:
    """This worker's working folder; those of dead ones go."""
    root = settings.scratch()
    root.mkdir(parents=True, exist_ok=True)
    for left in root.iterdir():
        if left.is_dir() and (lock := FolderLock.acquire(left)) is not None:
            lock.release(remove=True)
    own = FolderLock.acquire(root / worker)
    assert own is not None, "a worker's id is its own"
    return own
