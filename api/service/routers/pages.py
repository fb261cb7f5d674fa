"""`/v1/documents/{id}/pages/{n}`: a page as soon as it is done, and a picture of it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from api.service.context import Caller, Context, Shared
from api.service.delivery import deliver
from api.service.page_work import image_key, media_type, page_key
from api.service.problems import NotFound, NotReady, ServiceError, WorkFailed, responses
from api.service.routers.documents import DocumentId
from api.service.schemas import PageResult
from workers.artifacts import ArtifactNotFound
from workers.artifacts.receive import input_key
from workers.store.types import Document, PageState, PageStatus

router = APIRouter(prefix="/v1/documents", tags=["pages"])

PageNumber = Annotated[int, Path(ge=1, le=1_000_000, description="Counts from 1.")]
_BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/{document_id}/pages/{number}",
    response_model=PageResult,
    responses=responses("unauthorized", "not_found", "not_ready", "expired", "page_failed"),
    summary="A finished page",
)
async def page(document_id: DocumentId, number: PageNumber, context: Shared, tenant: Caller) -> PageResult:
    """Markdown, blocks with their boxes, size. A page that failed answers its error."""
    document = await context.document(document_id, tenant)
    state = await _page_state(context, document, number)
    if state.state is PageStatus.FAILED:
        raise WorkFailed(state.error_code, state.error)
    if state.state is not PageStatus.DONE:
        raise NotReady(f"Page {number} is {state.state}.", headers={"Retry-After": "1"}, state=str(state.state))
    try:
        value = await context.read(_stored_page, context, document, number)
        markdown = await context.page_work.markdown(document.job_key, number)
    except ArtifactNotFound:
        raise ServiceError("The page was removed by age or size. Submit the document again.", code="expired") from None
    record, model = value["record"], value["page"]
    return PageResult(
        page=number,
        route=record["route"],
        why=record["why"],
        seconds=record["seconds"],
        warnings=record["warnings"],
        width_pt=model["width_pt"],
        height_pt=model["height_pt"],
        rotation=model["rotation"],
        markdown=markdown,
        blocks=[_block(block, document) for block in model["blocks"]],
    )


@router.get(
    "/{document_id}/pages/{number}/image",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": _BINARY, "image/png": _BINARY}},
        304: {"description": "As the client has it (If-None-Match)."},
        **responses("unauthorized", "not_found", "bad_page_range", "encrypted", "damaged", "page_timeout"),
    },
    summary="A picture of a page",
)
async def picture(
    document_id: DocumentId,
    number: PageNumber,
    request: Request,
    context: Shared,
    tenant: Caller,
    width: Annotated[int, Query(ge=16, le=4000, description="Pixels.")] = 1200,
    format: Annotated[Literal["jpeg", "png"], Query()] = "jpeg",
) -> Response:
    """The page as a reader sees it, upright as its blocks are. Also of pages that are not parsed yet."""
    document = await context.document(document_id, tenant)
    if document.page_count is not None and number > document.page_count:
        raise NotFound(f"There is no page {number}: the document has {document.page_count}.")
    rotation = await context.read(_rotation, context, document, number)
    key = image_key(document.job_key, number, width, rotation, format)
    try:
        artifact = await context.page_work.draw(
            key,
            input_key(document.sha256),
            page=number,
            width=width,
            rotation=rotation,
            image_format=format,
            password=None,
        )
    except ArtifactNotFound:
        raise ServiceError("The document's bytes were removed by age or size.", code="expired") from None
    return await deliver(context, request, artifact, media_type=media_type(key), name=f"page-{number}", max_age=3600)


async def _page_state(context: Context, document: Document, number: int) -> PageState:
    """How the page stands. Raises NotFound for a page that the document has not, or that was not asked for."""
    if document.pages_total is None:
        if document.state.finished:
            raise WorkFailed(document.error_code or "cancelled", document.error or "The document was cancelled.")
        raise NotReady("The document is not opened yet.", headers={"Retry-After": "1"}, state=str(document.state))
    return await context.ask(context.store.page, document.id, number - 1)


def _stored_page(context: Context, document: Document, number: int) -> dict[str, Any]:
    with context.artifacts.open(page_key(document.job_key, number, "json")) as file:
        value: dict[str, Any] = json.load(file)
    return value


def _block(block: dict[str, Any], document: Document) -> dict[str, Any]:
    path = block.get("image_path")
    return {**block, "image": f"/v1/documents/{document.id}/{path}"} if path else block


def _rotation(context: Context, document: Document, number: int) -> int:
    """Quarter turns that made the page upright; 0 while it is not done."""
    try:
        return int(_stored_page(context, document, number)["page"]["rotation"])
    except ArtifactNotFound:
        return 0
