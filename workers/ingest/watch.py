"""Tells when a folder may have changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from workers.ingest.scan import Selection

_QUIET_MS = 2_000


def changes(source: Path, selection: Selection, stop: threading.Event) -> Iterator[bool]:
    """Until `stop` is set, give True each time that something has changed, False where nothing did for a while."""
    from watchfiles import watch

    for told in watch(
        source,
        recursive=selection.recursive,
        stop_event=stop,
        rust_timeout=_QUIET_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
        ignore_permission_denied=True,
    ):
        yield bool(told)
