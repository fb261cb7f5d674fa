"""`/v1/documents`: submit, look, list, cancel, remove, try again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response, status

from api.service import accepting
from api.service.context import Caller, Shared
from api.service.options import FIELDS, read_submission, read_wait
from api.service.problems import ServiceError, responses
from api.service.removal import remove_document
from api.service.schemas import DocumentList, DocumentStatus, Submitted
from api.service.views import document_status, document_view
from workers.store.types import DocumentState

router = APIRouter(prefix="/v1/documents", tags=["documents"])

DocumentId = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$", description="As `POST` answered it.")]

UPLOAD_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "additionalProperties": False,
                    "properties": {
                        "files": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "PDF, PNG, JPEG or TIFF; one or many.",
                        },
                        "route": {
                            "type": "string",
                            "enum": ["auto", "flash", "layout", "ocr", "vlm"],
                            "default": "auto",
                            "description": "How pages are read; auto decides page by page. "
                            "vlm needs an engine: see `routes` of `/v1/info`.",
                        },
                        "pages": {"type": "string", "examples": ["1-5,9,20-"], "description": "Empty for all."},
                        "password": {"type": "string", "description": "Of an encrypted PDF. Never shown again."},
                        "quality": {"type": "string", "enum": ["standard", "high"], "default": "standard"},
                        "force": {
                            "type": "boolean",
                            "default": False,
                            "description": "Parse even if the same bytes were parsed with the same options.",
                        },
                        "priority": {
                            "type": "integer",
                            "minimum": -100,
                            "maximum": 100,
                            "default": 0,
                            "description": "Higher goes first.",
                        },
                        "webhook": {"type": "string", "description": "Address that is told how it ended."},
                        "wait": {
                            "type": "number",
                            "minimum": 0,
                            "default": 0,
                            "description": "Seconds to hold the answer back until all are finished; also in the query.",
                        },
                    },
                },
                "encoding": {"files": {"contentType": "application/pdf, image/png, image/jpeg, image/tiff"}},
            }
        },
    }
}

UPLOAD_PROBLEMS = responses(
    "malformed_upload",
    "no_files",
    "unsupported_option",
    "webhook_refused",
    "unauthorized",
    "request_timeout",
    "idempotency_conflict",
    "payload_too_large",
    "unsupported_media_type",
    "bad_page_range",
    "queue_full",
    "disk_full",
    "unavailable",
)


@router.post(
    "",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=Submitted,
    responses={200: {"model": Submitted, "description": "All are finished (with `wait`)."}, **UPLOAD_PROBLEMS},
    openapi_extra=UPLOAD_SCHEMA,
    summary="Submit documents",
)
async def submit(
    request: Request,
    response: Response,
    context: Shared,
    tenant: Caller,
    wait: Annotated[float, Query(ge=0, description="As the form's `wait`.")] = 0,
    idempotency_key: Annotated[
        str | None,
        Header(max_length=200, description="Sending the same key again answers the documents of the first time."),
    ] = None,
) -> Submitted:
    """Streams the files to the store and answers at once; 200 instead of 202 if all were finished within `wait`.

    All files are accepted or none.
    """
    await accepting.check_room(context, tenant)
    async with context.uploads.receive(request, FIELDS, accepting.upload_limits(context)) as form:
        submission = read_submission(context, {name: form.first(name) for name in FIELDS})
        wait = max(wait, read_wait(form.first("wait")))
        files = await form.commit()
    documents = await accepting.accept(context, tenant, files, submission, idempotency_key=idempotency_key)
    if wait:
        documents = await accepting.wait_for(context, documents, min(wait, context.api.max_wait_seconds))
    if all(document.state.finished for document in documents):
        response.status_code = status.HTTP_200_OK
    if len(documents) == 1:
        response.headers["Location"] = f"/v1/documents/{documents[0].id}"
    return Submitted(documents=[await document_status(context, document) for document in documents])


@router.get(
    "", name="list", response_model=DocumentList, responses=responses("unauthorized", "bad_cursor"), summary="List"
)
async def listing(
    context: Shared,
    tenant: Caller,
    state: Annotated[DocumentState | None, Query(description="Only documents in this state.")] = None,
    batch: Annotated[str | None, Query(max_length=64, description="Only documents of this batch.")] = None,
    cursor: Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DocumentList:
    """Newest first, without their pages."""
    if cursor is not None and not cursor.startswith("doc_"):
        raise ServiceError("The cursor is none that this service gave.", code="bad_cursor")
    found = await context.ask(
        context.store.list_documents, tenant=tenant.name, state=state, batch=batch, cursor=cursor, limit=limit
    )
    return DocumentList(
        documents=[document_view(document) for document in found.documents], next_cursor=found.next_cursor
    )


@router.get(
    "/{document_id}",
    response_model=DocumentStatus,
    responses=responses("unauthorized", "not_found"),
    summary="State of a document",
)
async def show(
    document_id: DocumentId,
    context: Shared,
    tenant: Caller,
    pages: Annotated[bool, Query(description="Tell of each page.")] = True,
) -> DocumentStatus:
    """State, progress, how each page went, place in the queue."""
    return await document_status(context, await context.document(document_id, tenant), with_pages=pages)


@router.delete(
    "/{document_id}",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=DocumentStatus,
    responses={204: {"description": "It was finished, and is removed."}, **responses("unauthorized", "not_found")},
    summary="Cancel, or remove what is finished",
)
async def delete(document_id: DocumentId, context: Shared, tenant: Caller) -> Any:
    """An unfinished document is cancelled (202): at once if it waits, within seconds if pages are being parsed.
    A finished or cancelled one is removed with its results (204)."""
    document = await context.document(document_id, tenant)
    if document.state.finished:
        await remove_document(context, document)
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    return await document_status(context, await context.ask(context.store.cancel, document.id))


@router.post(
    "/{document_id}/retry",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=DocumentStatus,
    responses=responses("unauthorized", "not_found", "not_retryable", "expired"),
    summary="Try again what failed",
)
async def retry(document_id: DocumentId, context: Shared, tenant: Caller) -> DocumentStatus:
    """For documents that failed, are partial or were cancelled. Pages that are done are kept."""
    document = await context.document(document_id, tenant)
    return await document_status(context, await context.ask(context.store.retry, document.id))
