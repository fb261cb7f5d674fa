"""`/v1/documents/{id}/result` and `/images/{name}`: what came out of a finished document."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from api.service.context import Caller, Context, Shared
from api.service.delivery import deliver
from api.service.exports import export, result_key
from api.service.page_work import media_type
from api.service.problems import NotFound, NotReady, ServiceError, WorkFailed, responses
from api.service.routers.documents import DocumentId
from api.service.schemas import ResultFormat
from pipeline.output import safe_stem
from workers.artifacts import ArtifactInfo, ArtifactNotFound
from workers.store.types import Document, DocumentState

router = APIRouter(prefix="/v1/documents", tags=["results"])

_FILES = {
    ResultFormat.MD: ("document.md", ".md", "text/markdown; charset=utf-8"),
    ResultFormat.CONTENT_LIST: ("content_list.json", "_content_list.json", "application/json"),
    ResultFormat.MIDDLE: ("middle.json", "_middle.json", "application/json"),
}
_EXPORTS = {
    ResultFormat.ZIP: ("zip", ".zip", "application/zip"),
    ResultFormat.JSON: ("json", ".json", "application/json"),
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/{document_id}/result",
    response_class=Response,
    responses={
        200: {
            "content": {
                "text/markdown": {"schema": {"type": "string"}},
                "application/json": {"schema": {}},
                "application/zip": _BINARY,
            },
            "description": "The whole result.",
        },
        206: {"description": "The range asked for.", "content": {"application/octet-stream": _BINARY}},
        304: {"description": "As the client has it (If-None-Match)."},
        **responses(
            "unauthorized",
            "not_found",
            "not_ready",
            "cancelled",
            "expired",
            "range_not_satisfiable",
            "damaged",
            "too_large",
        ),
    },
    summary="Result of a document",
)
async def result(
    document_id: DocumentId,
    request: Request,
    context: Shared,
    tenant: Caller,
    format: Annotated[ResultFormat, Query(description="md, json, content_list, middle or zip.")] = ResultFormat.MD,
) -> Response:
    """Of a done or partial document. Answers ranges and If-None-Match. A failed document answers its error."""
    document = await context.document(document_id, tenant)
    check_finished(document)
    try:
        if format in _FILES:
            name, ending, media = _FILES[format]
            artifact = await context.ask(context.artifacts.info, result_key(document.job_key, name))
        else:
            suffix, ending, media = _EXPORTS[format]
            artifact = await context.read(export, context.artifacts, document.job_key, suffix)
        return await deliver(
            context,
            request,
            artifact,
            media_type=media,
            name=safe_stem(document.name) + ending,
            attachment=format is ResultFormat.ZIP,
        )
    except ArtifactNotFound:
        raise ServiceError("The result is not there any more. Submit the document again.", code="expired") from None


@router.get(
    "/{document_id}/images/{name}",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": _BINARY, "image/png": _BINARY}},
        304: {"description": "As the client has it (If-None-Match)."},
        **responses("unauthorized", "not_found"),
    },
    summary="A picture from a document",
)
async def image(
    document_id: DocumentId,
    name: Annotated[str, Path(max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")],
    request: Request,
    context: Shared,
    tenant: Caller,
) -> Response:
    """As Markdown and blocks name it (`images/NAME`); there as soon as its page is."""
    document = await context.document(document_id, tenant)
    artifact = await context.ask(_find_image, context, document, name)
    if artifact is None:
        raise NotFound(f"The document has no picture {name}.")
    return await deliver(context, request, artifact, media_type=media_type(name), name=name, max_age=3600)


def check_finished(document: Document) -> None:
    """Raise unless the document has a result: `not_ready`, `cancelled`, `expired`, or the code of its failure."""
    state = document.state
    if not state.finished:
        raise NotReady(
            f"The document is {state}. Its finished pages can be read one by one.",
            headers={"Retry-After": "1"},
            state=str(state),
        )
    if state is DocumentState.CANCELLED:
        raise ServiceError("The document was cancelled.", code="cancelled")
    if state is DocumentState.FAILED:
        raise WorkFailed(document.error_code, document.error)
    if document.expired:
        raise ServiceError("The result was removed by age or size. Submit the document again.", code="expired")


def _find_image(context: Context, document: Document, name: str) -> ArtifactInfo | None:
    for key in (result_key(document.job_key, f"images/{name}"), f"jobs/{document.job_key}/images/{name}"):
        try:
            return context.artifacts.info(key)
        except ArtifactNotFound:
            continue
    return None
