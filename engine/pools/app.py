"""The HTTP surface of an instance, as `messages.py` states it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.pools.errors import BadRequest, EngineFailed, PoolError, Unauthorised
from engine.pools.instance import Instance
from engine.pools.messages import Chunk, Decode, Generate, PeerAddress, RoleChange

log = logging.getLogger(__name__)

MAX_BODY = 128 << 20
_Message = TypeVar("_Message", bound=BaseModel)
_Answer = TypeVar("_Answer")


class _Named(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    request_id: str


def create_app(instance: Instance) -> Starlette:
    """The application; it does not start the instance."""

    async def health(request: Request) -> Response:
        found = instance.health()
        return _json(found, 200 if found.ok else 503)

    async def status(request: Request) -> Response:
        return _json(await instance.status())

    async def metrics(request: Request) -> Response:
        return Response(await instance.metrics(), media_type=CONTENT_TYPE_LATEST)

    async def prefill(request: Request) -> Response:
        wanted = await _body(request, Generate)
        return _json(await _unless_gone(request, instance.prefill(wanted)))

    async def decode(request: Request) -> Response:
        return await _stream(instance.decode(await _body(request, Decode)))

    async def generate(request: Request) -> Response:
        return await _stream(instance.generate(await _body(request, Generate)))

    async def release(request: Request) -> Response:
        await instance.release((await _body(request, _Named)).request_id)
        return JSONResponse({})

    async def abort(request: Request) -> Response:
        await instance.abort((await _body(request, _Named)).request_id)
        return JSONResponse({})

    async def role(request: Request) -> Response:
        return _json(await instance.change_role(await _body(request, RoleChange)))

    async def connect(request: Request) -> Response:
        return _json(await instance.connect(await _body(request, PeerAddress)))

    token = instance.settings.token.encode()
    routes = [
        Route("/health", _guarded(token, health), methods=["GET"]),
        Route("/v1/instance", _guarded(token, status), methods=["GET"]),
        Route("/metrics", _guarded(token, metrics), methods=["GET"]),
        *(
            Route(f"/v1/{call.__name__}", _guarded(token, call), methods=["POST"])
            for call in (prefill, decode, generate, release, abort, role, connect)
        ),
    ]
    return Starlette(routes=routes)


def _guarded(
    token: bytes, call: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Ask for the token, and answer with a typed error whatever happens."""

    async def guarded(request: Request) -> Response:
        try:
            given = request.headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, b"Bearer " + token):
                raise Unauthorised("The bearer token is missing or wrong.")
            return await call(request)
        except PoolError as error:
            return _failure(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            log.exception("%s failed", request.url.path)
            return _failure(EngineFailed(f"{type(error).__name__}: {error}"))

    return guarded


async def _body(request: Request, kind: type[_Message]) -> _Message:
    """Raises BadRequest."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > MAX_BODY:
            raise BadRequest(f"The body is longer than {MAX_BODY >> 20} MiB.")
    try:
        return kind.model_validate_json(bytes(content))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadRequest(f"{where or 'The body'}: {first['msg']}") from None


async def _unless_gone(request: Request, work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Do something, and stop if the client goes away meanwhile. Raises ClientDisconnect then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await one


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(chunks: AsyncIterator[Chunk]) -> Response:
    """Lines of chunks. What goes wrong before the first one is an error of HTTP."""
    first = await anext(chunks)
    return StreamingResponse(_lines(first, chunks), media_type="application/x-ndjson")


async def _lines(first: Chunk, chunks: AsyncIterator[Chunk]) -> AsyncIterator[bytes]:
    try:
        yield _line(first)
        async for chunk in chunks:
            yield _line(chunk)
    except PoolError as error:
        yield _line(Chunk(error=error.as_message()))
    except Exception as error:
        log.exception("a stream failed")
        yield _line(Chunk(error=EngineFailed(f"{type(error).__name__}: {error}").as_message()))
    finally:
        await chunks.aclose()  # type: ignore[attr-defined]


def _line(chunk: Chunk) -> bytes:
    return chunk.model_dump_json(exclude_none=True).encode() + b"\n"


def _json(message: BaseModel, status: int = 200) -> Response:
    return Response(message.model_dump_json(), status, media_type="application/json")


def _failure(error: PoolError) -> Response:
    return _json(error.as_message(), error.status)
