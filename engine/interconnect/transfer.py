"""The handle of one transfer: its state, its end, and when its blocks are safe again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum

from engine.interconnect.errors import DeadlineExceeded, InterconnectError, PeerLost, TransferCancelled

log = logging.getLogger(__name__)


class State(Enum):
    """A transfer's life. Only ever moves down this list, and ends in one of the last three."""

    NEW = "new"
    HANDSHAKING = "handshaking"
    READY = "ready"
    TRANSFERRING = "transferring"
    VERIFYING = "verifying"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (State.DONE, State.FAILED, State.CANCELLED)


class Transfer:
    """One pull, under way or ended.

    DONE means that every byte is in place and its checksum was right. After FAILED and CANCELLED the local blocks
    are undefined, and they may be used again once `is_fenced`: before, somebody may still write into them.

    Attributes:
        deadline: instant of `time.monotonic()`.
        moved: bytes fetched so far.
        seconds: from submission to the end.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.moved = 0
        self.seconds = 0.0
        self._born = time.monotonic()
        self._lock = threading.Lock()
        self._state = State.NEW
        self._error: InterconnectError | None = None
        self._stop: InterconnectError | None = None
        self._abort: Callable[[], None] | None = None
        self._ended = threading.Event()
        self._fenced = threading.Event()
        self._callbacks: list[Callable[[Transfer], None]] = []
        self._on_fenced: list[Callable[[], None]] = []

    def poll(self) -> State:
        """The state now. Never blocks."""
        return self._state

    @property
    def error(self) -> InterconnectError | None:
        """Why it FAILED or was CANCELLED."""
        return self._error

    @property
    def is_fenced(self) -> bool:
        """True once nothing can write into the local blocks any more."""
        return self._fenced.is_set()

    def wait(self, timeout: float | None = None) -> State:
        """Wait for the end, at most `timeout` seconds; by default until the deadline and the grace after it."""
        self._ended.wait(timeout)
        return self._state

    def wait_fenced(self, timeout: float | None = None) -> bool:
        """Wait until the local blocks are safe to use again."""
        return self._fenced.wait(timeout)

    def result(self, timeout: float | None = None) -> None:
        """Wait for the end and raise the error, if any. Raises DeadlineExceeded if it has not ended in time."""
        if not self.wait(timeout).is_final:
            raise DeadlineExceeded(f"not finished within {timeout} seconds")
        if self._error:
            raise self._error

    def cancel(self) -> None:
        """Stop as soon as possible. Harmless when it has ended."""
        self.stop(TransferCancelled("cancelled"))

    def add_done_callback(self, callback: Callable[[Transfer], None]) -> None:
        """Called once at the end, from any thread; at once if it has ended."""
        with self._lock:
            if not self._state.is_final:
                self._callbacks.append(callback)
                return
        callback(self)

    # What follows is for the machinery that carries the transfer out.

    def stop(self, why: InterconnectError) -> None:
        """End it for a reason: at once if nobody works on it, else by aborting whoever does."""
        with self._lock:
            if self._state.is_final or self._stop:
                return
            self._stop = why
            abort = self._abort
            waiting = self._state is State.NEW
        if waiting:
            self._end(_state_for(why), why, fenced=True, only_if=State.NEW)
        if abort:
            abort()

    def enter(self, state: State, abort: Callable[[], None] | None = None) -> None:
        """Move on. Raises the reason if it is to stop."""
        with self._lock:
            self.check()
            if self._state.is_final:
                raise self._error or PeerLost("ended")
            self._state = state
            self._abort = abort or self._abort

    def check(self) -> None:
        """Raise the reason if it is to stop."""
        if self._stop:
            raise self._stop
        if time.monotonic() >= self.deadline:
            raise DeadlineExceeded("the transfer was not finished by its deadline")

    def succeed(self) -> bool:
        """DONE, unless it was to stop. Whoever calls this writes no more."""
        with self._lock:
            stopped = self._stop is not None
        return not stopped and self._end(State.DONE, None, fenced=True)

    def fail(self, error: InterconnectError, *, fenced: bool) -> None:
        """FAILED or CANCELLED; the reason to stop, if there is one, explains whatever broke because of it.

        Args:
            fenced: nothing writes into the local blocks any more.
        """
        why = self._stop or error
        self._end(_state_for(why), why, fenced=fenced)
        if fenced:
            self.fence()

    def fence(self) -> None:
        """Nothing writes into the local blocks any more."""
        with self._lock:
            if self._fenced.is_set():
                return
            self._fenced.set()
            calls, self._on_fenced = self._on_fenced, []
        for call in calls:
            call()

    def when_fenced(self, call: Callable[[], None]) -> None:
        with self._lock:
            if not self._fenced.is_set():
                self._on_fenced.append(call)
                return
        call()

    def _end(
        self, state: State, error: InterconnectError | None, *, fenced: bool, only_if: State | None = None
    ) -> bool:
        with self._lock:
            if self._state.is_final or (only_if and self._state is not only_if):
                return False
            self._state, self._error = state, error
            self._abort = None
            self.seconds = time.monotonic() - self._born
            callbacks, self._callbacks = self._callbacks, []
        if fenced:
            # Before anybody is told: who waits for the end may use the blocks at once.
            self.fence()
        self._ended.set()
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                log.exception("a callback of a transfer failed")
        return True


def _state_for(error: InterconnectError) -> State:
    return State.CANCELLED if isinstance(error, TransferCancelled) else State.FAILED
