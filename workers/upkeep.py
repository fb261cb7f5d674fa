"""What every worker does beside its work: deliver webhooks, sweep artifacts."""

from __future__ import annotations

import threading
from types import TracebackType

from workers.artifacts import ArtifactStore
from workers.artifacts.sweeper import Sweeper, SweepSettings
from workers.store import JobStore
from workers.webhooks import Webhooks, WebhookSettings

_STOP_SECONDS = 45.0


class Upkeep:
    """Two threads. Any number of programs may run them on the same stores: each thing is done by one.

    Args:
        store, artifacts: of the service.
        webhooks, sweeps: settings; None reads the environment.
    """

    def __init__(
        self,
        store: JobStore,
        artifacts: ArtifactStore,
        *,
        webhooks: WebhookSettings | None = None,
        sweeps: SweepSettings | None = None,
    ) -> None:
        self._stopping = threading.Event()
        caller, sweeper = Webhooks(store, webhooks), Sweeper(store, artifacts, sweeps)
        self._threads = [
            threading.Thread(target=caller.run, args=(self._stopping,), name="webhooks", daemon=True),
            threading.Thread(target=sweeper.run, args=(self._stopping,), name="sweeper", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more, and wait for the calls that are under way."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def __enter__(self) -> Upkeep:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
