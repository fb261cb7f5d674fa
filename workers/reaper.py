"""Brings back the work of workers that died or fell silent."""

from __future__ import annotations

import logging
import threading

from workers.presence import is_gone
from workers.settings import ServiceSettings
from workers.store import JobStore
from workers.store.fleet import Presence

log = logging.getLogger(__name__)

_LEADER = "reaper"
_LEADER_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_NEIGHBOURS_EVERY = 5
"""Looks between two questions whether the processes of neighbours still run."""

_FORGET_SECONDS = 3600.0


class Reaper:
    """A thread in every worker. One of all leads, and ends leases that are over; each looks for dead neighbours."""

    def __init__(self, store: JobStore, settings: ServiceSettings, presence: Presence) -> None:
        self._store, self._settings, self._presence = store, settings, presence
        self._stopping = threading.Event()
        self._leads = False
        self._thread = threading.Thread(target=self._run, name="reaper", daemon=True)

    @property
    def leads(self) -> bool:
        """Whether this is the one of all."""
        return self._leads

    def start(self) -> None:
        # Before any work is taken: what an earlier run of this program held goes on at once.
        self._bury_neighbours()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=10)
        if self._leads:
            try:
                self._store.stop_leading(_LEADER, self._presence.id)
            except Exception:
                log.exception("the reaper's lease ends by itself")

    def _run(self) -> None:
        looks = 0
        while not self._stopping.is_set():
            try:
                self._leads = self._store.lead(_LEADER, self._presence.id, _LEADER_SECONDS)
                if self._leads:
                    self._reap(())
                if looks % _NEIGHBOURS_EVERY == 0:
                    self._bury_neighbours()
            except Exception:
                self._leads = False
                log.exception("lost work could not be looked for")
            looks += 1
            self._stopping.wait(_LOOK_SECONDS)

    def _bury_neighbours(self) -> None:
        neighbours = self._store.neighbours(self._presence.place)
        gone = [neighbour.id for neighbour in neighbours if is_gone(neighbour)]
        if gone:
            self._reap(gone)
        if gone or self._leads:
            self._store.forget_workers(_FORGET_SECONDS, gone)

    def _reap(self, dead: list[str] | tuple[()]) -> None:
        reaped = self._store.reap(self._settings.max_losses, dead)
        if reaped:
            log.warning("%d pieces of work lost their worker and are queued again", reaped)
