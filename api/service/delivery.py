"""Artifacts as answers: entity tags, ranges, names for downloads."""

from __future__ import annotations

from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import FileResponse, Response

from api.service.context import Context
from api.service.problems import ServiceError
from workers.artifacts import ArtifactInfo


async def deliver(
    context: Context,
    request: Request,
    artifact: ArtifactInfo,
    *,
    media_type: str,
    name: str,
    attachment: bool = False,
    max_age: int = 0,
) -> Response:
    """An artifact as an answer that can be resumed and asked for again at no cost.

    Args:
        name: offered to whoever saves it.
        attachment: ask browsers to save it instead of showing it.
        max_age: seconds for which a client need not ask again.

    Raises:
        ServiceError: range_not_satisfiable.
    """
    headers = {
        "ETag": f'"{artifact.tag}"',
        "Last-Modified": formatdate(artifact.modified.timestamp(), usegmt=True),
        "Cache-Control": f"private, max-age={max_age}" if max_age else "private, no-cache",
        "Content-Disposition": f"{'attachment' if attachment else 'inline'}; filename*=utf-8''{quote(name, safe='')}",
        # What was cut out of a document is shown, never run: SVG can carry scripts.
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    }
    if unchanged(request, artifact.tag):
        return Response(status_code=304, headers=headers)
    path = await context.read(context.artifacts.fetch, artifact.key)
    _check_range(request, artifact.size)
    return FileResponse(Path(path), headers=headers, media_type=media_type)


def unchanged(request: Request, tag: str) -> bool:
    """Whether the client says that it has these bytes already (If-None-Match)."""
    known = request.headers.get("if-none-match")
    if known is None:
        return False
    tags = {part.strip().removeprefix("W/") for part in known.split(",")}
    return "*" in tags or f'"{tag}"' in tags


def _check_range(request: Request, size: int) -> None:
    """Refuse a range that lies beyond the end; one that is not written as a range is none, and is ignored."""
    text = request.headers.get("range", "")
    unit, _, ranges = text.partition("=")
    if unit.strip().lower() != "bytes" or "," in ranges:
        return
    first = ranges.strip().partition("-")[0]
    if first.isdigit() and int(first) >= size:
        raise ServiceError(
            f"The range begins beyond the end ({size} bytes).",
            code="range_not_satisfiable",
            headers={"Content-Range": f"bytes */{size}"},
        )
