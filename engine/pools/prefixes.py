"""Names for the beginnings of prompts, which a router can compute without a tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from engine.pools.messages import ChatMessage, TextPart


def prefix_hashes(messages: Sequence[ChatMessage]) -> tuple[str, ...]:
    """One hash for every beginning of a conversation that ends with a part, shortest first.

    Two prompts that share the first n hashes begin with the same n parts, so that the KV of those can be shared.
    """
    digest = hashlib.sha256()
    found = []
    for piece in _pieces(messages):
        digest.update(len(piece).to_bytes(8) + piece)
        found.append(digest.hexdigest()[:16])
    return tuple(found)


def _pieces(messages: Sequence[ChatMessage]) -> Iterator[bytes]:
    for message in messages:
        for index, part in enumerate(message.content):
            kind, value = ("text", part.text) if isinstance(part, TextPart) else ("image", part.image)
            yield f"{message.role if index == 0 else ''}\0{kind}\0{value}".encode()
