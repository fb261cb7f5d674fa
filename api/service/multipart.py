"""`multipart/form-data` part by part while it comes in: nothing is gathered, nothing is spooled to disk."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.service.problems import BadUpload, ServiceError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 1100
"""Bound on the parts of one form; the bound on its files is the service's own setting."""


_EXTENDED_FILENAME = re.compile(rb"filename\*=[^']*'[^']*'([^;\s]+)", re.IGNORECASE)
"""RFC 7578 forbids it in forms, and older HTTP clients send nothing else for a name that is not ASCII."""


@dataclass(frozen=True, slots=True)
class PartStarted:
    """A part's headers. `filename` is None for a plain field, as the client wrote it for a file."""

    name: str
    filename: str | None


@dataclass(frozen=True, slots=True)
class PartData:
    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnded:
    pass


PartEvent = PartStarted | PartData | PartEnded


async def read_form(content_type: str, body: AsyncIterator[bytes]) -> AsyncIterator[PartEvent]:
    """Yield what a form holds, in its order.

    Args:
        content_type: the request's header.
        body: the request's body in chunks; no more than one chunk is held.

    Raises:
        ServiceError: `unsupported_media_type` or `malformed_upload`.
    """
    collector = _Collector()
    parser = MultipartParser(_boundary(content_type), collector.callbacks())
    try:
        async for chunk in body:
            parser.write(chunk)
            for event in collector.take():
                yield event
        parser.finalize()
    except FormParserError as error:
        raise BadUpload(f"The form cannot be read: {error}.") from None
    for event in collector.take():
        yield event
    if not collector.complete:
        raise BadUpload("The form ends before its last boundary.")


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind.lower() != b"multipart/form-data":
        raise ServiceError("Send the files as multipart/form-data.", code="unsupported_media_type")
    boundary = options.get(b"boundary")
    if not boundary or len(boundary) > 256:
        raise BadUpload("The Content-Type header names no boundary.")
    return boundary


class _Collector:
    """Turns the parser's callbacks into events."""

    def __init__(self) -> None:
        self.complete = False
        self._events: list[PartEvent] = []
        self._field = bytearray()
        self._value = bytearray()
        self._disposition = b""
        self._parts = 0

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": lambda data, start, end: self._events.append(PartData(data[start:end])),
            "on_part_end": lambda: self._events.append(PartEnded()),
            "on_end": self._end,
        }

    def take(self) -> list[PartEvent]:
        events, self._events = self._events, []
        return events

    def _begin(self) -> None:
        self._disposition = b""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadUpload(f"The form has more than {MAX_PARTS} parts.")

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise BadUpload("A part of the form has no name.")
        filename = options.get(b"filename")
        if filename is None and (match := _EXTENDED_FILENAME.search(self._disposition)):
            filename = unquote_to_bytes(match[1])
        self._events.append(PartStarted(_text(options[b"name"]), None if filename is None else _text(filename)))

    def _end(self) -> None:
        self.complete = True


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
