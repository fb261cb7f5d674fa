"""Tells workers that there is work: keeps as many messages in each queue as there are pieces to claim.

Woken by whoever makes work, and by itself now and then, because messages get lost: Redis was emptied, a worker
took one and died, the store was written by a program that sends none.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping

from celery import Celery
from kombu import Connection

from workers.celery_app import celery_app, queue_of, task_name
from workers.settings import ServiceSettings
from workers.store import JobKind, JobStore

log = logging.getLogger(__name__)

_MOST = 64
"""Messages kept in one queue. A task works until there is nothing left, so more would wake nobody else."""

_PAUSE_AFTER_FAILURE = 1.0
_REST, _LONGEST_REST = 19, 0.25
"""Times as long as looking took, and seconds: so looking takes a twentieth of one core, however many jobs there are."""


class Tokens:
    """Sends messages from a thread of its own, so that nobody waits for a broker that does not answer.

    Args:
        regularly: whether to look for work now, asked every `poll_seconds`; None for only when woken.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        store: JobStore,
        *,
        regularly: Callable[[], bool] | None = None,
    ) -> None:
        self._store = store
        self._broker = _Broker(settings)
        self._pause = settings.poll_seconds if regularly else None
        self._regularly = regularly or (lambda: False)
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokens", daemon=True)

    def start(self) -> None:
        self._store.tell = self.wake
        self._thread.start()

    def wake(self) -> None:
        """There may be new work. Returns at once."""
        self._awake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._awake.set()
        self._thread.join(timeout=10)
        self._broker.close()

    def _run(self) -> None:
        failing = False
        while not self._stopping.is_set():
            woken = self._awake.wait(self._pause)
            self._awake.clear()
            if self._stopping.is_set() or not (woken or self._regularly()):
                continue
            began = time.monotonic()
            try:
                self._broker.top_up(self._store.claimable())
                failing = False
            except Exception as error:  # noqa: BLE001 - broker or database out of reach: the next round tries again
                if not failing:
                    log.warning("workers cannot be told of work (%s: %s); trying on", type(error).__name__, error)
                failing = True
                self._broker.close()
                self._stopping.wait(_PAUSE_AFTER_FAILURE)
                self._awake.set()
            # Every finished piece wakes: what is woken for meanwhile is looked for together.
            self._stopping.wait(min(_LONGEST_REST, _REST * (time.monotonic() - began)))


class _Broker:
    """One connection to the broker, made when it is needed and again after it broke. For one thread."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._app: Celery = celery_app(settings)
        self._connection: Connection | None = None

    def top_up(self, claimable: Mapping[JobKind, int]) -> None:
        """Send what is missing: messages that no worker has taken yet count, those being worked on do not."""
        for kind, count in claimable.items():
            for _ in range(min(count, _MOST) - self._length(kind)):
                self._app.send_task(task_name(kind), args=(None,), connection=self._connection, retry=False)

    def _length(self, kind: JobKind) -> int:
        if self._connection is None:
            self._connection = self._app.connection_for_write()
            for each in JobKind:
                queue_of(self._settings, each)(self._connection.default_channel).declare()
        # Not passive: Redis keeps no empty lists, so that a passive declaration finds no queue where nothing waits.
        try:
            declared = self._connection.default_channel.queue_declare(
                queue=queue_of(self._settings, kind).name, passive=True
            )
        except self._connection.channel_errors:
            return 0  # Redis has no empty lists: there is no such queue while nothing is in it
        return int(declared.message_count)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it may be the broken connection that is closed here
                connection.release()
