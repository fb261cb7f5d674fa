"""`/file_parse`: as MinerU's own API server takes and answers it, so that its clients only change an address.

The whole document in one request and one answer. What concerns MinerU's engines (`backend`, `server_url`,
`lang_list`, `formula_enable`, `table_enable`, `output_dir`) is accepted and has no effect here.
"""

from __future__ import annotations

import base64
import contextlib
import json
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from api.service import accepting
from api.service.context import Caller, Shared
from api.service.exports import result_key
from api.service.options import Submission, flag
from api.service.page_work import media_type
from api.service.problems import ServiceError, UnsupportedOption
from api.service.routers.documents import UPLOAD_PROBLEMS
from pipeline.options import ParseOptions
from pipeline.output import safe_stem
from pipeline.page_model import Route
from pipeline.versions import version_of
from workers.artifacts import ArtifactNotFound, ArtifactStore
from workers.store.types import Document, DocumentState

router = APIRouter(tags=["MinerU"])

_ROUTES = {"auto": Route.AUTO, "txt": Route.LAYOUT, "ocr": Route.OCR}
_WITHOUT_EFFECT = ("output_dir", "lang_list", "backend", "formula_enable", "table_enable", "server_url")
_FLAGS = {
    "return_md": True,
    "return_middle_json": False,
    "return_model_output": False,
    "return_content_list": False,
    "return_images": False,
    "response_format_zip": False,
}
_FIELDS = (*_WITHOUT_EFFECT, *_FLAGS, "parse_method", "start_page_id", "end_page_id")
_LAST_PAGE = 99_999
_COPY_BYTES = 1 << 20

_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}},
                        "parse_method": {"type": "string", "enum": list(_ROUTES), "default": "auto"},
                        "start_page_id": {"type": "integer", "minimum": 0, "default": 0},
                        "end_page_id": {"type": "integer", "minimum": 0, "default": _LAST_PAGE},
                        **{name: {"type": "boolean", "default": default} for name, default in _FLAGS.items()},
                        **{name: {"type": "string", "description": "No effect."} for name in _WITHOUT_EFFECT},
                    },
                }
            }
        },
    }
}


@router.post(
    "/file_parse",
    response_class=Response,
    responses={
        200: {
            "description": "`{backend, version, results: {name: {md_content, ...}}}`, or a zip.",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "application/zip": {"schema": {"type": "string", "format": "binary"}},
            },
        },
        **UPLOAD_PROBLEMS,
    },
    openapi_extra=_SCHEMA,
    summary="Parse as MinerU's API server does",
)
async def file_parse(request: Request, context: Shared, tenant: Caller) -> Response:
    """Answers when all files are done. A file that fails has `error` in place of its content."""
    await accepting.check_room(context, tenant)
    async with context.uploads.receive(request, _FIELDS, accepting.upload_limits(context)) as form:
        submission = Submission(
            ParseOptions(
                route=_route(form.first("parse_method")),
                pages=_pages(form.first("start_page_id"), form.first("end_page_id")),
            )
        )
        wanted = {
            name: default if form.first(name) is None else flag(name, form.first(name))
            for name, default in _FLAGS.items()
        }
        files = await form.commit()
    documents = await accepting.accept(context, tenant, files, submission)
    documents = await accepting.wait_for(context, documents, context.api.file_parse_seconds)
    if not all(document.state.finished for document in documents):
        raise ServiceError(
            "The documents are not finished in time. The same request again goes on where they are.",
            code="not_ready",
            headers={"Retry-After": "10"},
            documents=[document.id for document in documents],
        )
    named = _distinct_names(documents)
    if wanted["response_format_zip"]:
        archive = await context.read(_zip, context.artifacts, named, wanted)
        headers = {"Content-Disposition": 'attachment; filename="results.zip"'}
        return StreamingResponse(_chunks(archive), media_type="application/zip", headers=headers)
    return StreamingResponse(_json(context.artifacts, named, wanted), media_type="application/json")


def _route(parse_method: str | None) -> Route:
    route = _ROUTES.get(parse_method or "auto")
    if route is None:
        raise UnsupportedOption(f"parse_method is one of {', '.join(_ROUTES)}.", option="parse_method")
    return route


def _pages(start: str | None, end: str | None) -> str:
    """Our page selection for MinerU's first and last page, which count from 0."""
    first, last = _number("start_page_id", start, 0), _number("end_page_id", end, _LAST_PAGE)
    if last < first:
        raise UnsupportedOption("end_page_id is before start_page_id.", option="end_page_id")
    if last >= _LAST_PAGE:
        return f"{first + 1}-" if first else ""
    return f"{first + 1}-{last + 1}"


def _number(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise UnsupportedOption(f"{name} is a whole number from 0 on.", option=name)
    return int(text)


def _distinct_names(documents: Sequence[Document]) -> dict[str, Document]:
    named: dict[str, Document] = {}
    for document in documents:
        stem = safe_stem(document.name)
        name, number = stem, 2
        while name in named:
            name, number = f"{stem}_{number}", number + 1
        named[name] = document
    return named


def _json(store: ArtifactStore, documents: dict[str, Document], wanted: dict[str, bool]) -> Iterator[str]:
    """The answer in pieces: one document's content is in memory at a time."""
    yield f'{{"backend": "pipeline", "version": {json.dumps(version_of("mineru"))}, "results": {{'
    for number, (name, document) in enumerate(documents.items()):
        content = json.dumps(_content(store, document, wanted), ensure_ascii=False)
        yield f"{', ' if number else ''}{json.dumps(name, ensure_ascii=False)}: {content}"
    yield "}}"


def _content(store: ArtifactStore, document: Document, wanted: dict[str, bool]) -> dict[str, Any]:
    if document.state not in (DocumentState.DONE, DocumentState.PARTIAL):
        return {"error": f"{document.error_code or document.state}: {document.error or 'cancelled'}"}
    content: dict[str, Any] = {}
    for option, key, name in (
        ("return_md", "md_content", "document.md"),
        ("return_middle_json", "middle_json", "middle.json"),
        ("return_content_list", "content_list", "content_list.json"),
    ):
        if wanted[option]:
            content[key] = _read(store, result_key(document.job_key, name)).decode("utf-8")
    if wanted["return_model_output"]:
        content["model_output"] = None
    if wanted["return_images"]:
        prefix = result_key(document.job_key, "images/")
        content["images"] = {
            artifact.key.removeprefix(prefix): _data_uri(store, artifact.key) for artifact in store.list(prefix)
        }
    return content


def _zip(store: ArtifactStore, documents: dict[str, Document], wanted: dict[str, bool]) -> IO[bytes]:
    """A zip in an unnamed temporary file, so that nothing is left whatever happens."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who sends it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, document in documents.items():
            content = _content(store, document, {**wanted, "return_images": False})
            for key, ending in (
                ("md_content", ".md"),
                ("middle_json", "_middle.json"),
                ("content_list", "_content_list.json"),
                ("error", "_error.txt"),
            ):
                if content.get(key) is not None:
                    archive.writestr(f"{name}/{name}{ending}", content[key])
            if wanted["return_images"] and "error" not in content:
                prefix = result_key(document.job_key, "images/")
                for artifact in store.list(prefix):
                    archive.writestr(f"{name}/images/{artifact.key.removeprefix(prefix)}", _read(store, artifact.key))
    file.seek(0)
    return file


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_COPY_BYTES):
            yield chunk


def _read(store: ArtifactStore, key: str) -> bytes:
    with contextlib.suppress(ArtifactNotFound), store.open(key) as file:
        return file.read()
    return b""


def _data_uri(store: ArtifactStore, key: str) -> str:
    return f"data:{media_type(key)};base64,{base64.b64encode(_read(store, key)).decode('ascii')}"
