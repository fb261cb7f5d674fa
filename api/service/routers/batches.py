"""`/v1/batches`: many files at once, uploaded or from a folder that the service can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, status
from pydantic import ValidationError

from api.service import accepting, directories
from api.service.context import Caller, Shared
from api.service.options import FIELDS, read_submission
from api.service.problems import ServiceError, responses
from api.service.routers.documents import UPLOAD_PROBLEMS, UPLOAD_SCHEMA
from api.service.schemas import BatchStatus, DirectoryBatch, SkippedFile
from api.service.uploads import UploadedFile
from api.service.views import batch_view

router = APIRouter(prefix="/v1/batches", tags=["batches"])

_FIELDS = (*(name for name in FIELDS if name != "wait"), "name")


def _schema() -> dict[str, Any]:
    form = UPLOAD_SCHEMA["requestBody"]["content"]["multipart/form-data"]
    properties = {name: value for name, value in form["schema"]["properties"].items() if name != "wait"}
    properties["name"] = {"type": "string", "maxLength": 200, "description": "Shown with the batch."}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {**form, "schema": {**form["schema"], "properties": properties}},
                "application/json": {"schema": DirectoryBatch.model_json_schema()},
            },
        }
    }


@router.post(
    "",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=BatchStatus,
    responses={**UPLOAD_PROBLEMS, **responses("invalid", "bad_page_range", "not_configured", "forbidden", "not_found")},
    openapi_extra=_schema(),
    summary="Submit a batch",
)
async def submit(
    request: Request,
    context: Shared,
    tenant: Caller,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> BatchStatus:
    """A form with `files`, or a JSON object that names a folder below the service's PAGEMILL_BATCH_ROOT.

    Answers when every file of it is accepted. One bad file does not stop a batch: it fails by itself.
    """
    await accepting.check_room(context, tenant)
    files: Sequence[UploadedFile]
    skipped: Sequence[SkippedFile] = ()
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        body = await _directory_batch(request)
        fields = {name: _as_text(value) for name, value in body.model_dump().items() if name in FIELDS}
        submission = read_submission(context, fields)
        paths = await context.read(directories.find_files, context.api, body.directory, body.recursive, body.glob)
        await accepting.check_room(context, tenant, len(paths))
        files, skipped = await context.read(directories.take_in, context.artifacts, paths)
        name = body.name or body.directory
    else:
        async with context.uploads.receive(request, _FIELDS, accepting.upload_limits(context)) as form:
            submission = read_submission(context, {name: form.first(name) for name in FIELDS})
            files, name = await form.commit(), (form.first("name") or "")[:200]
    if not files:
        raise ServiceError("There is no file to parse.", code="no_files")
    batch = await context.ask(context.store.create_batch, tenant.name, name)
    documents = await accepting.accept(
        context, tenant, files, submission, idempotency_key=idempotency_key, batch_id=batch.id
    )
    # Sent again with the same key, the documents are the first time's, and so is their batch.
    batch_id = documents[0].batch_id or batch.id
    return batch_view(await context.ask(context.store.batch, batch_id, tenant=tenant.name), skipped)


@router.get(
    "/{batch_id}",
    response_model=BatchStatus,
    responses=responses("unauthorized", "not_found"),
    summary="State of a batch",
)
async def show(
    batch_id: Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")], context: Shared, tenant: Caller
) -> BatchStatus:
    """Counts of its documents by state; the documents themselves are listed by `/v1/documents?batch=`."""
    return batch_view(await context.ask(context.store.batch, batch_id, tenant=tenant.name))


async def _directory_batch(request: Request) -> DirectoryBatch:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > 64 * 1024:
            raise ServiceError("The body is longer than 64 KiB.", code="payload_too_large")
        chunks.append(chunk)
    try:
        return DirectoryBatch.model_validate_json(b"".join(chunks))
    except ValidationError as error:
        found = [{"where": ".".join(map(str, e["loc"])), "message": e["msg"]} for e in error.errors()]
        detail = "; ".join(f"{e['where'] or 'body'}: {e['message']}" for e in found)
        raise ServiceError(detail, code="invalid", errors=found) from None


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value).lower()
