"""A service that really listens, with its stores in a folder of the test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from api.service.app import create_app
from api.service.context import Context
from api.service.settings import ApiSettings
from workers.artifacts import ArtifactStore, artifact_store
from workers.settings import ServiceSettings
from workers.store.job_store import JobStore


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: its address, and the stores behind it."""

    port: int
    store: JobStore
    artifacts: ArtifactStore
    folder: Path
    context: Context

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **arguments: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, **arguments)

    def files(self) -> list[str]:
        """Every file of the artifact store, what is half written included."""
        root = self.folder / "artifacts"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


class _Ready(uvicorn.Server):
    """Tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextlib.contextmanager
def running(folder: Path, settings: ServiceSettings | None = None, **api: Any) -> Iterator[Service]:
    """A service without workers. `api` are fields of ApiSettings."""
    artifacts = artifact_store(folder / "artifacts")
    settings = settings or ServiceSettings(data_dir=folder)
    with JobStore.open(f"sqlite:///{folder}/store.db") as store:
        app = create_app(settings, ApiSettings(**api), store=store, artifacts=artifacts)
        server = _Ready(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        assert server.listening.wait(30), "the service did not come up"
        try:
            port = server.servers[0].sockets[0].getsockname()[1]
            yield Service(port, store, artifacts, folder, app.state.context)
        finally:
            app.state.context.stopping.set()
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive(), "the service did not stop"
