"""Errors as RFC 9457 problem details, and the one table from code to HTTP status.

Every code of the pipeline and the workers is in the table, so that a code means the same in a document's
`error` and in the body of a refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

from pipeline.errors import PipelineError
from workers.store.types import StoreError

MEDIA_TYPE = "application/problem+json"

STATUS: dict[str, int] = {
    # the service's own
    "bad_request": 400,
    "malformed_upload": 400,
    "no_files": 400,
    "unsupported_option": 400,
    "bad_idempotency_key": 400,
    "bad_cursor": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "cross_site": 403,
    "unknown_host": 421,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_ready": 409,
    "conflict": 409,
    "idempotency_conflict": 409,
    "request_timeout": 408,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "range_not_satisfiable": 416,
    "invalid": 422,
    "rate_limited": 429,
    "quota_exceeded": 429,
    "queue_full": 429,
    "internal": 500,
    "not_configured": 403,
    "unavailable": 503,
    # of the pipeline: what is wrong with a document
    "bad_page_range": 422,
    "empty_file": 422,
    "not_a_pdf": 422,
    "encrypted": 422,
    "damaged": 422,
    "too_large": 413,
    "too_many_pages": 422,
    "page_too_big": 422,
    "no_pages": 422,
    "unreadable_file": 422,
    "page_failed": 422,
    "page_timeout": 422,
    "page_out_of_memory": 422,
    "page_crashed": 422,
    "cancelled": 409,
    # of the machine
    "pipeline_error": 500,
    "route_unavailable": 501,
    "engine_unavailable": 503,
    "output_busy": 409,
    "output_not_writable": 507,
    "disk_full": 507,
    # of the job store
    "store_error": 500,
    "not_finished": 409,
    "not_retryable": 409,
    "expired": 410,
    "worker_lost": 500,
    # of webhooks
    "webhook_refused": 422,
    "webhook_name_not_resolved": 422,
    # of the artifact store
    "artifact_error": 500,
    "artifact_not_found": 404,
    "bad_artifact_key": 404,
    "artifact_store_unavailable": 503,
}

_log = logging.getLogger("pagemill.api")


class Problem(BaseModel):
    """What went wrong (RFC 9457). `code` never changes; `detail` is for people."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "type": "urn:pagemill:problem:not_found",
                "title": "Not Found",
                "status": 404,
                "detail": "There is no document doc_0.",
                "code": "not_found",
            }
        },
    )

    type: str = Field(description="`urn:pagemill:problem:` and the code.")
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable, snake case.")
    instance: str | None = Field(None, description="Path of the request.")


class ServiceError(Exception):
    """A refusal. Its status is its code's unless given; `headers` and `members` go into the answer."""

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problem_code = code or self.code
        self.status = status
        self.headers = dict(headers or {})
        self.members = members


class NotFound(ServiceError):
    """There is none, or it is another tenant's: a caller cannot tell which."""

    code = "not_found"


class Unauthorized(ServiceError):
    code = "unauthorized"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="pagemill"'})


class NotReady(ServiceError):
    """It will be there later: the document or the page is not finished."""

    code = "not_ready"


class WorkFailed(ServiceError):
    """A document or a page failed. That is a fact about it, and asking again does not change it: 422 whatever the
    code, which is a 5xx where a request fails for the same reason."""

    def __init__(self, code: str | None, detail: str | None) -> None:
        super().__init__(detail or "It could not be parsed.", code=code or "pipeline_error", status=422)


class TooMany(ServiceError):
    """Refused for now: `rate_limited`, `quota_exceeded` or `queue_full`, with the seconds to wait."""

    code = "rate_limited"

    def __init__(self, detail: str, *, code: str, retry_after: int) -> None:
        super().__init__(detail, code=code, headers={"Retry-After": str(max(1, retry_after))}, retry_after=retry_after)


class PayloadTooLarge(ServiceError):
    code = "payload_too_large"


class BadUpload(ServiceError):
    code = "malformed_upload"


class UnsupportedOption(ServiceError):
    code = "unsupported_option"


def install(app: FastAPI) -> None:
    """Answer every error of the application as problem details."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(PipelineError, _lower_error)
    app.add_exception_handler(StoreError, _lower_error)
    app.add_exception_handler(DBAPIError, _store_away)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(Exception, _unexpected)


def problem(
    code: str,
    detail: str,
    *,
    status: int | None = None,
    instance: str | None = None,
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    """The response for a code of the table."""
    status = status or STATUS.get(code, 500)
    body = Problem(
        type=f"urn:pagemill:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        instance=instance,
        **members,
    )
    content = body.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The refusals of an operation, for its OpenAPI description."""
    by_status: dict[int | str, list[str]] = {}
    for code in codes:
        by_status.setdefault(STATUS[code], []).append(code)
    return {
        status: {
            "description": ", ".join(f"`{code}`" for code in names),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, names in by_status.items()
    }


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return problem(
        error.problem_code,
        error.detail,
        status=error.status,
        instance=request.url.path,
        headers=error.headers,
        **error.members,
    )


async def _lower_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PipelineError | StoreError)
    if STATUS.get(error.code, 500) >= 500:
        _log.error("%s %s: %s: %s", request.method, request.url.path, error.code, error.message)
    return problem(error.code, error.message, instance=request.url.path)


async def _store_away(request: Request, error: Exception) -> Response:
    _log.error("%s %s: the job store does not answer: %s", request.method, request.url.path, error)
    detail = "The job store does not answer. Try again in a moment."
    return problem("unavailable", detail, instance=request.url.path, headers={"Retry-After": "5"})


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{"where": ".".join(map(str, e["loc"])), "message": e["msg"]} for e in error.errors()]
    detail = "; ".join(f"{e['where']}: {e['message']}" for e in found) or "The request is not valid."
    return problem("invalid", detail, instance=request.url.path, errors=found)


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed", 413: "payload_too_large", 415: "unsupported_media_type"}.get(
        error.status_code, "bad_request" if error.status_code < 500 else "internal"
    )
    return problem(code, str(error.detail), instance=request.url.path, headers=error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem("internal", "The service failed to answer. Its log says why.", instance=request.url.path)
