"""A pool of page processes, shared by every document of one program."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

from pipeline.errors import Cancelled
from pipeline.processes.process import Limits, PageProcess, Task


class PageProcesses:
    """`size` page processes, started as they are needed; tasks are taken in the order of their submission.

    Thread-safe. Use it as a context manager: leaving it kills the children.

    Args:
        size: how many tasks run at the same time.
        limits: for each process.
    """

    def __init__(self, size: int, limits: Limits | None = None) -> None:
        self.size = max(1, size)
        self._processes = [PageProcess(limits) for _ in range(self.size)]
        self._idle: queue.LifoQueue[PageProcess] = queue.LifoQueue()
        for process in reversed(self._processes):
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="page-process")
        self._closing = threading.Event()

    def submit(
        self, task: Task, on_value: Callable[[Any], None], cancelled: threading.Event | None = None
    ) -> Future[None]:
        """Queue a task. `on_value` is called, in a thread of the pool, with each value that it yields.

        The future ends with None or with the error that `PageProcess.run` raises.
        """
        return self._threads.submit(self._run, task, on_value, _AnyOf(self._closing, cancelled))

    def stream(self, task: Task, cancelled: threading.Event | None = None) -> Generator[Any, None, None]:
        """Queue a task and yield what it yields, as it comes, in the caller's thread.

        The process goes on to its next task while the caller still works on the last values. A caller that leaves
        before the end (closes the iterator) cancels the task. Raises what `PageProcess.run` raises.
        """
        values: queue.SimpleQueue[Any] = queue.SimpleQueue()
        abandoned, end = threading.Event(), object()
        future = self._threads.submit(self._run, task, values.put, _AnyOf(self._closing, cancelled, abandoned))
        future.add_done_callback(lambda _: values.put(end))
        try:
            while (value := values.get()) is not end:
                yield value
            if future.cancelled():
                raise Cancelled("Cancelled before it began.")
            future.result()
        finally:
            abandoned.set()
            if not future.cancel():
                wait([future])  # nobody writes for this task once this returns

    def call(self, task: Task, cancelled: threading.Event | None = None) -> Any:
        """Run a task that yields one value, wait for it, and return the value."""
        values: list[Any] = []
        self.submit(task, values.append, cancelled).result()
        return values[-1]

    def _run(self, task: Task, on_value: Callable[[Any], None], cancelled: _AnyOf) -> None:
        process = self._idle.get()
        try:
            # Closed here, not when an error's traceback is forgotten: if `on_value` raises, the child is in the
            # middle of the task, and must be gone before the process is given to another.
            with contextlib.closing(process.run(task, cancelled)) as values:
                for value in values:
                    on_value(value)
        finally:
            self._idle.put(process)

    def memory_bytes(self) -> int:
        """Resident memory of all children and what they started, bytes."""
        return sum(process.memory_bytes() for process in self._processes)

    def stop_idle(self) -> None:
        """End the children that have nothing to do, to give back their memory."""
        idle: list[PageProcess] = []
        while True:
            try:
                idle.append(self._idle.get_nowait())
            except queue.Empty:
                break
        for process in idle:
            process.kill()
            self._idle.put(process)

    def close(self) -> None:
        """Cancel what runs, forget what waits, end every child. Safe to call twice."""
        self._closing.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.kill()

    def __enter__(self) -> PageProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _AnyOf(threading.Event):
    """Set as soon as one of the given events is: the pool closes, or the document is cancelled."""

    def __init__(self, *events: threading.Event | None) -> None:
        super().__init__()
        self._events = [event for event in events if event is not None]

    def is_set(self) -> bool:
        return super().is_set() or any(event.is_set() for event in self._events)
