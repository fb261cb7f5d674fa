"""Uploads into a store: hashed and bounded while they stream, kept under their SHA-256."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import BinaryIO

from workers.artifacts.base import ArtifactStore

_WRITE_BYTES = 1 << 18
"""Chunks of the network are gathered to this size before a thread is asked to write them."""


@dataclass(frozen=True, slots=True)
class Received:
    """An upload that is in the store.

    Attributes:
        key: `inputs/<sha256>`.
        sha256: of its bytes, hexadecimal.
        size: bytes.
    """

    key: str
    sha256: str
    size: int


async def receive(store: ArtifactStore, chunks: AsyncIterator[bytes], *, max_bytes: int | None = None) -> Received:
    """Write an upload to the store while it comes in, without blocking the event loop.

    If the upload is over the limit, breaks off or is cancelled, nothing is kept. Equal bytes share one
    artifact, whose time is renewed, so that a sweeper does not take it away under the new document.

    Args:
        chunks: the bytes as they come, of any sizes.
        max_bytes: the most to take; nothing beyond it is read.

    Raises:
        TooLarge, DiskFull, ArtifactStoreUnavailable: and what `chunks` raises.
    """
    writer = store.writer(max_bytes=max_bytes)  # makes a local file: too short a work for a thread
    try:
        waiting = bytearray()
        async for chunk in chunks:
            waiting += chunk
            if len(waiting) >= _WRITE_BYTES:
                await _finish(writer.write, bytes(waiting))
                waiting.clear()
        await _finish(writer.write, bytes(waiting))
        await _finish(writer.commit, input_key)
        return Received(input_key(writer.sha256), writer.sha256, writer.size)
    finally:
        await _finish(writer.__exit__, None, None, None)


def receive_file(store: ArtifactStore, source: BinaryIO, *, max_bytes: int | None = None) -> Received:
    """The same for a file object, in the calling thread."""
    with store.writer(max_bytes=max_bytes) as writer:
        while chunk := source.read(1 << 20):
            writer.write(chunk)
        writer.commit(input_key)
        return Received(input_key(writer.sha256), writer.sha256, writer.size)


def input_key(sha256: str) -> str:
    """Where the bytes of a document lie."""
    return f"inputs/{sha256}"


async def _finish(function: Callable[..., object], *arguments: object) -> None:
    """Run in a thread and see it through even if the task is cancelled: a writer has one thread at a time."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
