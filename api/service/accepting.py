"""From uploaded files to accepted documents: is there room, one row each, and waiting for the end if asked to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from api.service.auth import Tenant
from api.service.context import Context
from api.service.options import Submission
from api.service.problems import ServiceError, TooMany
from api.service.uploads import UploadedFile, UploadLimits
from pipeline.settings import settings as pipeline_settings
from workers.store.types import UNFINISHED, Document, DocumentState, NewDocument

_FIRST_LOOK_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5
_RETRY_SECONDS = 5
"""After which a refused client may ask again. A full queue moves on by a document in about that time."""


def upload_limits(context: Context) -> UploadLimits:
    return UploadLimits(
        max_bytes=pipeline_settings().max_file_mb * 2**20,
        max_files=context.api.max_files_per_request,
        idle_seconds=context.api.upload_idle_seconds,
    )


async def check_room(context: Context, tenant: Tenant, files: int = 1) -> None:
    """Raise TooMany if the queue, or the tenant's part of it, has no room for so many documents.

    Requests that come at the same time may each find the last place free: the bound is one of protection, not of
    exact number.
    """
    most = context.settings.max_queued_documents
    fleet = await context.ask(context.store.counts)
    unfinished = sum(count for state, count in fleet.documents.items() if not DocumentState(state).finished)
    if unfinished + files > most:
        raise TooMany(
            f"{unfinished:,} documents wait or are being parsed; the limit is {most:,}.",
            code="queue_full",
            retry_after=_RETRY_SECONDS,
        )
    if tenant.max_documents:
        found = await context.ask(
            context.store.list_documents, tenant=tenant.name, state=sorted(UNFINISHED), limit=tenant.max_documents
        )
        if len(found.documents) + files > tenant.max_documents:
            raise TooMany(
                f"{len(found.documents):,} of your documents are unfinished; your limit is {tenant.max_documents:,}.",
                code="quota_exceeded",
                retry_after=_RETRY_SECONDS,
            )


async def accept(
    context: Context,
    tenant: Tenant,
    files: Sequence[UploadedFile],
    submission: Submission,
    *,
    idempotency_key: str | None = None,
    batch_id: str | None = None,
) -> list[Document]:
    """One document for each file, in their order.

    Raises:
        ServiceError: bad_idempotency_key. IdempotencyConflict: the key was used for other files.
    """
    if idempotency_key is not None and not (idempotency_key.isascii() and idempotency_key.isprintable()):
        raise ServiceError("Idempotency-Key must be printable ASCII.", code="bad_idempotency_key")

    def accept_all() -> list[Document]:
        return [
            context.store.accept(
                NewDocument(
                    tenant=tenant.name,
                    name=file.name,
                    sha256=file.sha256,
                    size_bytes=file.size,
                    options=submission.options,
                    priority=submission.priority,
                    batch_id=batch_id,
                    # Each file of a request has a key of its own; the same request again gives the same ones.
                    idempotency_key=None if idempotency_key is None else f"{idempotency_key}#{number}",
                    webhook_url=submission.webhook,
                )
            )
            for number, file in enumerate(files)
        ]

    documents = await context.accept(accept_all)
    context.metrics.accepted.inc(len(documents))
    context.metrics.upload_bytes.inc(sum(file.size for file in files))
    return documents


async def wait_for(context: Context, documents: Sequence[Document], seconds: float) -> list[Document]:
    """The documents as they are once all are finished, or after so many seconds, or when the service stops."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_LOOK_SECONDS
    current = list(documents)
    while not all(document.state.finished for document in current) and not context.stopping.is_set():
        left = deadline - time.monotonic()
        if left <= 0:
            break
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.3, _LONGEST_PAUSE_SECONDS)
        current = await context.ask(_again, context, current)
    return current


def _again(context: Context, documents: Sequence[Document]) -> list[Document]:
    return [d if d.state.finished else context.store.document(d.id) for d in documents]
