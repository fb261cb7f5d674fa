"""Which prompts' beginnings this instance has in its KV cache, as far as can be said without looking into it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from engine.pools.messages import ChatMessage
from engine.pools.prefixes import prefix_hashes

MOST = 1000


class CachedPrefixes:
    """The latest prompts that fit into the cache together; older ones have most likely given way.

    Args:
        tokens: that the KV cache holds.
    """

    def __init__(self, tokens: int) -> None:
        self._most_tokens = tokens
        self._tokens = 0
        self._prompts: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def add(self, messages: Sequence[ChatMessage], tokens: int) -> None:
        """A prompt of so many tokens has just been computed."""
        hashes = prefix_hashes(messages)
        if not hashes:
            return
        self._tokens += tokens - self._prompts.pop(hashes, 0)
        self._prompts[hashes] = tokens
        while (self._tokens > self._most_tokens and len(self._prompts) > 1) or len(self._prompts) > MOST:
            _, gone = self._prompts.popitem(last=False)
            self._tokens -= gone

    def roots(self) -> tuple[str, ...]:
        """Hashes, newest first, each once."""
        found: dict[str, None] = {}
        for hashes in reversed(self._prompts):
            found |= dict.fromkeys(hashes)
            if len(found) >= MOST:
                break
        return tuple(found)[:MOST]
