"""Webhooks and sweeps run beside the work."""

from __future__ import annotations

import io
import json
from pathlib import Path

from tests.workers.servers import wait_for
from tests.workers.webhooks.receiver import receiver
from tests.workers.webhooks.test_delivery import settings
from workers.artifacts import receive_file
from workers.artifacts.folder import FolderStore
from workers.artifacts.sweeper import SweepSettings
from workers.store import JobStore, NewDocument
from workers.upkeep import Upkeep


def test_what_is_due_is_delivered_and_what_is_over_is_swept(tmp_path: Path) -> None:
    artifacts = FolderStore(tmp_path / "artifacts")
    sweeps = SweepSettings(result_ttl_hours=1e-9, sweep_seconds=0.1, sweep_grace_seconds=1e-6)  # type: ignore[call-arg]
    with JobStore.open(f"sqlite:///{tmp_path}/store.db") as store, receiver() as hook:
        kept = receive_file(artifacts, io.BytesIO(b"waiting"))
        store.accept(NewDocument("", "a.pdf", kept.sha256, kept.size))
        over = receive_file(artifacts, io.BytesIO(b"over"))
        document = store.accept(NewDocument("", "b.pdf", over.sha256, over.size, webhook_url=hook.url()))
        artifacts.put(f"jobs/{document.job_key}/pages/00001.json", b"{}")
        with Upkeep(store, artifacts, webhooks=settings(), sweeps=sweeps):
            store.cancel(document.id)
            assert json.loads(hook.calls.get(timeout=20).body)["type"] == "document.cancelled"
            wait_for(lambda: [info.key for info in artifacts.list()] == [kept.key], "only what is needed is left")
        assert store.document(document.id).expired
