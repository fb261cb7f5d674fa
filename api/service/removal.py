"""Removing a document: its row, and the artifacts that no other document needs."""

from __future__ import annotations

import contextlib

from api.service.context import Context
from workers.artifacts import ArtifactInfo, ArtifactNotFound
from workers.artifacts.receive import input_key
from workers.store.types import Document


async def remove_document(context: Context, document: Document) -> None:
    """Remove a finished document. What another document shares with it stays."""
    source = await context.read(_info, context, input_key(document.sha256))
    removed = await context.ask(context.store.remove, document.id)
    if removed.job_key is not None:
        await context.read(context.artifacts.delete_prefix, f"jobs/{removed.job_key}/")
    if removed.input_sha256 is not None and source is not None:
        # Not if the same bytes were uploaded again meanwhile: their document is about to be accepted.
        await context.read(context.artifacts.delete_if_unchanged, source)


def _info(context: Context, key: str) -> ArtifactInfo | None:
    with contextlib.suppress(ArtifactNotFound):
        return context.artifacts.info(key)
    return None
