"""The claims that a worker holds: their leases are kept, and their work is stopped when nobody wants it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from workers.settings import ServiceSettings
from workers.store import Claim, JobStore
from workers.store.fleet import Presence

log = logging.getLogger(__name__)


class Holdings:
    """Claims in work, each with an event that is set when its work should stop.

    A thread sends the worker's sign of life and extends the leases, and looks for jobs that were cancelled.
    """

    def __init__(self, store: JobStore, settings: ServiceSettings, presence: Presence) -> None:
        self._store, self._settings, self._presence = store, settings, presence
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Claim, threading.Event]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._store.worker_seen(self._presence)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=10)
        with contextlib.suppress(Exception):  # it is forgotten in time anyhow
            self._store.worker_left(self._presence.id)

    @contextlib.contextmanager
    def hold(self, claim: Claim) -> Iterator[threading.Event]:
        """For the time of the `with` block; yields the event to stop at."""
        stop = threading.Event()
        with self._lock:
            self._held[claim.token] = (claim, stop)
        try:
            yield stop
        finally:
            with self._lock:
                self._held.pop(claim.token, None)

    def stop_all(self) -> None:
        """Ask all work to stop now."""
        with self._lock:
            held = list(self._held.values())
        for _, stop in held:
            stop.set()

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)

    def _run(self) -> None:
        beat = time.monotonic() + self._settings.heartbeat_seconds
        while not self._stopping.wait(self._settings.cancel_poll_seconds):
            try:
                self._stop_unwanted()
                if time.monotonic() >= beat:
                    beat = time.monotonic() + self._settings.heartbeat_seconds
                    self._beat()
            except Exception:
                log.exception("no sign of life could be sent")

    def _stop_unwanted(self) -> None:
        with self._lock:
            held = list(self._held.values())
        unwanted = self._store.unwanted({claim.job_key for claim, _ in held})
        for claim, stop in held:
            if claim.job_key in unwanted:
                stop.set()

    def _beat(self) -> None:
        self._store.worker_seen(self._presence)
        with self._lock:
            held = list(self._held.values())
        kept = self._store.heartbeat([claim for claim, _ in held])
        for claim, stop in held:
            if claim.token not in kept:
                stop.set()  # given to another; or just finished, and then nobody listens
