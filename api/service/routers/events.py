"""`/v1/documents/{id}/events`: what happens to a document, as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from api.service.context import Caller, Context, Shared
from api.service.problems import ServiceError, responses
from api.service.routers.documents import DocumentId
from api.service.views import event_data
from workers.store.types import Document, Event, NotFound

router = APIRouter(prefix="/v1/documents", tags=["documents"])

_EVENT_SCHEMA = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

_AT_ONCE = 200
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two looks at the store: short while things happen, longer while nothing does."""

_RECONNECT_MILLISECONDS = 1000
_MAX_ID = 2**63 - 1


@router.get(
    "/{document_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"schema": _EVENT_SCHEMA}},
            "description": "`id`, `event` (the kind) and `data` (JSON) of each event, from the first one after "
            "Last-Event-ID. Ends when the document is finished.",
        },
        204: {"description": "It is finished and the reader has seen every event: do not connect again."},
        **responses("unauthorized", "not_found", "bad_request"),
    },
    summary="Follow a document",
)
async def events(
    document_id: DocumentId,
    context: Shared,
    tenant: Caller,
    last_event_id: Annotated[
        str | None, Header(description="The last `id` seen; browsers send it by themselves.")
    ] = None,
    after: Annotated[int, Query(ge=0, le=_MAX_ID, description="As Last-Event-ID, for clients without headers.")] = 0,
) -> Response:
    """accepted, preparing, opened, page (one for each page), assembling, then done, partial, failed or cancelled."""
    document = await context.document(document_id, tenant)
    last = max(after, _event_id(last_event_id))
    first = await context.ask(context.store.events_after, document.id, last, _AT_ONCE)
    if not first and last and document.state.finished:
        return Response(status_code=204)
    return StreamingResponse(
        _stream(context, document, first, last),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


async def _stream(context: Context, document: Document, events: list[Event], last: int) -> AsyncIterator[str]:
    heartbeat = context.api.event_heartbeat_seconds
    pause, spoke = _SHORTEST_PAUSE, time.monotonic()
    with context.metrics.event_streams.track_inprogress():
        yield f"retry: {_RECONNECT_MILLISECONDS}\n\n"
        while True:
            for event in events:
                last = event.id
                yield _frame(event)
            if events:
                pause, spoke = _SHORTEST_PAUSE, time.monotonic()
            elif document.state.finished or context.stopping.is_set():
                return
            elif time.monotonic() - spoke >= heartbeat:
                yield ": still here\n\n"
                spoke = time.monotonic()
            if len(events) < _AT_ONCE:
                if await _stopping_within(context, pause):
                    return
                pause = min(pause * 1.3, _LONGEST_PAUSE)
            try:
                # The state is read before the events: a finished document then has no event still to come.
                document = await context.ask(context.store.document, document.id)
                events = await context.ask(context.store.events_after, document.id, last, _AT_ONCE)
            except NotFound:
                return  # removed meanwhile


async def _stopping_within(context: Context, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await context.stopping.wait()
    except TimeoutError:
        return False


def _frame(event: Event) -> str:
    data = json.dumps(event_data(event.data, event.kind, event.at), ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n"


def _event_id(text: str | None) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MAX_ID):
        raise ServiceError("Last-Event-ID is no id of an event.", code="bad_request")
    return int(text)
