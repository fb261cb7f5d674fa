"""One thread that calls what is due: ends of leases, deadlines of transfers, cut-offs of silent peers."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


# Cancelled timers stay in the heap until they are due, or until they are more than half of a heap of this size.
TIDY_FROM = 512


class Timer:
    """A call that is to come. `cancel` may be called at any time, any number of times."""

    __slots__ = ("_clock", "call")

    def __init__(self, clock: Clock, call: Callable[[], None]) -> None:
        self._clock = clock
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        if self.call is not None:
            self.call = None
            self._clock.cancelled += 1


class Clock:
    """Calls functions at instants of `time.monotonic()`. They must be short: they share one thread.

    Attributes:
        cancelled: about how many cancelled timers are still kept.
    """

    def __init__(self, name: str) -> None:
        self.cancelled = 0
        self._due: list[tuple[float, int, Timer]] = []
        self._number = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"{name}-clock", daemon=True)
        self._thread.start()

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self, call)
        with self._changed:
            if len(self._due) > TIDY_FROM and self.cancelled > len(self._due) // 2:
                self._due = [due for due in self._due if due[2].call is not None]
                heapq.heapify(self._due)
                self.cancelled = 0
            first = not self._due or when < self._due[0][0]
            heapq.heappush(self._due, (when, next(self._number), timer))
            if first:
                self._changed.notify()
        return timer

    def close(self) -> None:
        """Nothing is called any more; waits for a call under way, unless called by it."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if self._closed:
                    return
                timer = heapq.heappop(self._due)[2]
            call = timer.call
            if call is None:
                continue
            try:
                call()
            except Exception:
                # A call that fails must not stop the others: leases would never end.
                log.exception("a timed call failed")
