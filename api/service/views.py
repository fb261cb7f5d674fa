"""From what the stores know to what the service answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from api.service.context import Context
from api.service.schemas import BatchStatus, DocumentStatus, ErrorInfo, Links, Options, PageStatus, SkippedFile
from workers.store.types import Batch, Document, DocumentState, PageState


async def document_status(context: Context, document: Document, *, with_pages: bool = True) -> DocumentStatus:
    """The answer about one document, its pages included."""

    def ask() -> tuple[Sequence[PageState] | None, int | None]:
        pages = context.store.pages(document.id) if with_pages else None
        if document.state is DocumentState.QUEUED:
            return pages, context.store.queue_position(document.id)
        return pages, None if document.state.finished else 0

    pages, position = await context.ask(ask)
    return document_view(document, pages=pages, queue_position=position)


def document_view(
    document: Document, *, pages: Sequence[PageState] | None = None, queue_position: int | None = None
) -> DocumentStatus:
    path = f"/v1/documents/{document.id}"
    return DocumentStatus(
        id=document.id,
        name=document.name,
        state=str(document.state),
        created_at=_time(document.created_at),
        started_at=document.started_at and _time(document.started_at),
        finished_at=document.finished_at and _time(document.finished_at),
        size_bytes=document.size_bytes,
        sha256=document.sha256,
        priority=document.priority,
        batch=document.batch_id,
        options=Options(
            route=str(document.options.route),
            pages=document.options.pages,
            quality=str(document.options.quality),
            force=document.options.force,
        ),
        page_count=document.page_count,
        pages_total=document.pages_total,
        pages_done=document.pages_done,
        pages_failed=document.pages_failed,
        expired=document.expired,
        queue_position=queue_position,
        error=_error(document.error_code, document.error),
        pages=None if pages is None else [page_view(page) for page in pages],
        links=Links(self=path, events=f"{path}/events", pages=f"{path}/pages/{{n}}", result=f"{path}/result"),
    )


def page_view(page: PageState) -> PageStatus:
    finished = page.finished_at is not None
    return PageStatus(
        page=page.index + 1,
        state=str(page.state),
        route=page.route,
        why=page.why or None,
        seconds=page.seconds if finished else None,
        warnings=list(page.warnings),
        error=_error(page.error_code, page.error),
    )


def batch_view(batch: Batch, skipped: Sequence[SkippedFile] = ()) -> BatchStatus:
    unfinished = [state for state in batch.counts if not DocumentState(state).finished]
    return BatchStatus(
        id=batch.id,
        name=batch.name,
        created_at=_time(batch.created_at),
        total=batch.total,
        finished=not any(batch.counts[state] for state in unfinished),
        counts={state: count for state, count in batch.counts.items() if count},
        documents=f"/v1/documents?batch={batch.id}",
        skipped=list(skipped),
    )


def event_data(data: dict[str, Any], kind: str, at: float) -> dict[str, Any]:
    """The JSON of one event, for streams."""
    return {"event": kind, "at": _time(at).isoformat().replace("+00:00", "Z"), **data}


def _error(code: str | None, message: str | None) -> ErrorInfo | None:
    return ErrorInfo(code=code, message=message or "") if code else None


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
