"""Connections to the instances that this one pulls from: chosen by measurement, kept, and dropped when they break."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from engine.interconnect.choose import Choice, choose
from engine.interconnect.errors import InterconnectError, LayoutMismatch
from engine.interconnect.layout import KVLayout, require_fit
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.transport import DEFAULT_REGION, Transport
from engine.pools.errors import PeerUnreachable
from engine.pools.messages import PeerAddress

PROBE_BYTES = 4 << 20


_Key = tuple[str, int, tuple[str, ...]]


class Peers:
    """All peers of one instance. Safe to use from any thread; calls block.

    Args:
        layout: of this instance's KV cache.
        by_name: transports that were asked for by name; the foreign ones are never taken otherwise.
    """

    def __init__(self, transports: Mapping[str, Transport], layout: KVLayout, by_name: frozenset[str]) -> None:
        self._transports = transports
        self._layout = layout
        self._by_name = by_name
        self._lock = threading.Lock()
        self._greeting: dict[_Key, threading.Lock] = {}
        self._choices: dict[_Key, Choice] = {}

    def connect(self, peer: PeerAddress, seconds: float) -> Choice:
        """The connection to a peer, made and measured now if there is none.

        Raises:
            PeerUnreachable: no transport works; the message gives the reasons.
            LayoutMismatch: the peer's blocks hold something else.
        """
        key = _key(peer)
        deadline = time.monotonic() + seconds
        with self._lock:
            greeting = self._greeting.setdefault(key, threading.Lock())
        if not greeting.acquire(timeout=max(0.0, seconds)):
            raise PeerUnreachable(f"greeting {peer.engine_id} took longer than {seconds:.1f} seconds")
        try:
            with self._lock:
                known = self._choices.get(key)
            if known is None:
                known = self._greet(peer, deadline)
                self._remember(key, known)
            return known
        finally:
            greeting.release()

    def drop(self, peer: PeerAddress) -> None:
        """Forget the connection to a peer; the next `connect` makes a new one."""
        with self._lock:
            choice = self._choices.pop(_key(peer), None)
        if choice:
            choice.connection.close()

    def close(self) -> None:
        with self._lock:
            choices = list(self._choices.values())
            self._choices.clear()
        for choice in choices:
            choice.connection.close()

    def _greet(self, peer: PeerAddress, deadline: float) -> Choice:
        try:
            offers = {offer.transport: offer for offer in map(PeerMetadata.from_json, peer.interconnect)}
            for offer in offers.values():
                if DEFAULT_REGION not in offer.regions:
                    raise LayoutMismatch("the peer offers no KV cache")
                require_fit(offer.regions[DEFAULT_REGION], self._layout)
            return choose(self._transports, offers, deadline=deadline, by_name=self._by_name, probe_bytes=PROBE_BYTES)
        except LayoutMismatch:
            raise
        except InterconnectError as error:
            raise PeerUnreachable(f"{peer.engine_id}: {error.message}") from None

    def _remember(self, key: _Key, choice: Choice) -> None:
        with self._lock:
            self._choices[key] = choice
            # Earlier incarnations are gone.
            older = [other for other in self._choices if other[0] == key[0] and other[1] != key[1]]
            stale = [self._choices.pop(other) for other in older]
            for other in older:
                self._greeting.pop(other, None)
        for gone in stale:
            gone.connection.close()


def _key(peer: PeerAddress) -> _Key:
    """A peer that is named with fewer ways to it is reached by those."""
    return peer.engine_id, peer.epoch, peer.interconnect
