"""Uploads: a form's files go to the artifact store while they come in, hashed and bounded as they stream.

Nothing is kept until the whole form is read and found right: files are committed together at its end, so a
client that goes away, a file over the limit or an unknown option leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message

from api.service.multipart import PartData, PartStarted, read_form
from api.service.names import safe_file_name
from api.service.problems import BadUpload, PayloadTooLarge, ServiceError, UnsupportedOption
from pipeline.errors import PipelineError
from workers.artifacts import ArtifactStore, ArtifactWriter
from workers.artifacts.receive import input_key

_WRITE_BYTES = 1 << 16
"""Handed to a thread at a time. Small, because two hundred uploads hold one each."""

_AT_ONCE = 2
"""Chunks that are parsed and written at the same time. Other uploads wait with theirs, which in turn stops their
senders: however many there are, other requests get their turn between two chunks."""

_GLANCE_SECONDS = 0.002

FILES = "files"
"""The form's field for files."""

_MAX_FIELD_BYTES = 16 * 1024
_DRAIN_BYTES = 16 * 2**20
_DRAIN_SECONDS = 5.0
"""A refusal reaches a client that is still sending only if what it sends is read: so much of it, so long."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file that is in the artifact store, by its hash. `name` is safe to show, store and offer."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Bounds of one form: bytes of one file, files, and seconds in which something must arrive."""

    max_bytes: int
    max_files: int
    idle_seconds: float


class Uploads:
    """Receives forms into an artifact store. `threads` do the writing, so that the event loop never waits."""

    def __init__(self, store: ArtifactStore, threads: Executor) -> None:
        self._store = store
        self._threads = threads
        self._turns = asyncio.Semaphore(_AT_ONCE)

    @contextlib.asynccontextmanager
    async def receive(self, request: Request, known: Collection[str], limits: UploadLimits) -> AsyncIterator[Form]:
        """Read a form to its end. What its user does not `commit` within the `async with` is not kept.

        Args:
            known: the fields that it may have beside `files`.

        Raises:
            ServiceError: malformed_upload, unsupported_option, payload_too_large, request_timeout,
                unsupported_media_type. TooLarge, DiskFull: nothing is kept.
        """
        body = _body(request, limits.idle_seconds, self._turns)
        form = Form(self._call)
        try:
            try:
                await self._read(request, body, known, limits, form)
            except ClientDisconnect:
                raise BadUpload("The client went away before the form was complete.") from None
            except (ServiceError, PipelineError):
                await _drain(body)
                raise
            yield form
        finally:
            await body.aclose()  # gives its turn back
            await form.drop()

    async def _read(
        self,
        request: Request,
        body: AsyncIterator[bytes],
        known: Collection[str],
        limits: UploadLimits,
        form: Form,
    ) -> None:
        sink: Callable[[bytes], Awaitable[None]] = _ignore
        finish: Callable[[], Awaitable[None]] = _nothing
        async for event in read_form(request.headers.get("content-type", ""), body):
            if isinstance(event, PartStarted):
                if event.name == FILES:
                    if event.filename is None:
                        raise BadUpload(f"The part {FILES!r} is no file: it has no file name.")
                    if form.file_count >= limits.max_files:
                        raise PayloadTooLarge(f"More than {limits.max_files} files in one request.")
                    writer = await self._call(lambda: self._store.writer(max_bytes=limits.max_bytes))
                    form.add_file(event.filename, writer)
                    gathered = _Gathered(writer, self._call)
                    sink, finish = gathered.add, gathered.flush
                elif event.name in known and event.filename is None:
                    text = _Field(event.name, form.fields)
                    sink, finish = text.add, text.finish
                else:
                    raise UnsupportedOption(
                        f"There is no option {event.name[:100]!r}. Known: {', '.join(sorted(known))}; "
                        f"files go into {FILES}.",
                        option=event.name[:100],
                    )
            elif isinstance(event, PartData):
                await sink(event.data)
            else:
                await finish()
                sink, finish = _ignore, _nothing

    async def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run in a thread and see it through even if the request is cancelled: a writer has one user at a time."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*arguments))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise


class Form:
    """A whole form. Its fields are there to be looked at before its files are kept; empty ones count as not given."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self.fields: dict[str, list[str]] = {}
        self._call = call
        self._writers: list[tuple[str, ArtifactWriter]] = []

    @property
    def file_count(self) -> int:
        return len(self._writers)

    def first(self, name: str) -> str | None:
        values = self.fields.get(name)
        return values[0] if values else None

    def add_file(self, name: str, writer: ArtifactWriter) -> None:
        self._writers.append((name, writer))

    async def commit(self) -> list[UploadedFile]:
        """Put the files into the store, in their order. Equal bytes share one artifact, whose time is renewed.

        Raises:
            ServiceError: no_files.
        """
        # A browser sends a nameless empty file for a file field that was left empty.
        kept = [(name, writer) for name, writer in self._writers if name or writer.size]
        if not kept:
            raise ServiceError(f"The form has no file. Put one or more into `{FILES}`.", code="no_files")
        for _, writer in kept:
            await self._call(writer.commit, input_key)
        return [UploadedFile(safe_file_name(name), writer.sha256, writer.size) for name, writer in kept]

    async def drop(self) -> None:
        for _, writer in self._writers:
            await self._call(writer.__exit__, None, None, None)


class _Gathered:
    """Gathers small chunks so that a thread is not asked for each."""

    def __init__(self, writer: ArtifactWriter, call: Callable[..., Awaitable[None]]) -> None:
        self._writer, self._call = writer, call
        self._waiting: list[bytes] = []
        self._size = 0

    async def add(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= _WRITE_BYTES // 4:
            await self.flush()

    async def flush(self) -> None:
        data, self._waiting, self._size = b"".join(self._waiting), [], 0
        if data:
            await self._call(self._writer.write, data)


class _Field:
    """A plain field: UTF-8, short."""

    def __init__(self, name: str, fields: dict[str, list[str]]) -> None:
        self._name, self._fields = name, fields
        self._value = bytearray()

    async def add(self, data: bytes) -> None:
        self._value += data
        if len(self._value) > _MAX_FIELD_BYTES:
            raise UnsupportedOption(f"The option {self._name!r} is longer than {_MAX_FIELD_BYTES} bytes.")

    async def finish(self) -> None:
        value = self._value.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        if value:
            self._fields.setdefault(self._name, []).append(value)


async def _ignore(data: bytes) -> None:
    """Data outside any part."""


async def _nothing() -> None:
    """The end of no part."""


async def _body(request: Request, idle_seconds: float, turns: asyncio.Semaphore) -> AsyncGenerator[bytes]:
    """The request's body in pieces; while its user works on one, it holds a turn.

    What has come already is taken only once there is a turn to work on it, so that waiting uploads hold no more
    than the server's own buffer. Waiting for the network holds no turn, but for a glance.

    Raises:
        ClientDisconnect; ServiceError: request_timeout, if nothing arrives for `idle_seconds`.
    """
    more = True
    while more:
        async with turns:
            message = await _receive(request, _GLANCE_SECONDS)
            for piece in _pieces(message):
                yield piece
        if message is None:
            message = await _receive(request, idle_seconds)
            if message is None:
                raise ServiceError(f"Nothing arrived for {idle_seconds:g} seconds.", code="request_timeout")
            async with turns:
                for piece in _pieces(message):
                    yield piece
        more = message.get("more_body", False)
        await asyncio.sleep(0)  # lets others in, also where nothing of this upload ever waits


async def _receive(request: Request, seconds: float) -> Message | None:
    """The next message; None if there is none within so many seconds. Raises ClientDisconnect."""
    try:
        async with asyncio.timeout(seconds):
            message = await request.receive()
    except TimeoutError:
        return None
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


def _pieces(message: Message | None) -> Iterator[bytes]:
    body = message.get("body", b"") if message else b""
    for start in range(0, len(body), _WRITE_BYTES):
        yield body[start : start + _WRITE_BYTES]


async def _drain(body: AsyncIterator[bytes]) -> None:
    dropped = 0
    with contextlib.suppress(TimeoutError, ClientDisconnect, ServiceError, RuntimeError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in body:
                dropped += len(chunk)
                if dropped > _DRAIN_BYTES:
                    return
