"""KV blocks of finished prefills, kept for whoever pulls them, and given back exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.interconnect.leases import Lease
from engine.interconnect.transport import Transport


@dataclass(slots=True, eq=False)
class _Held:
    blocks: tuple[int, ...]
    on_free: Callable[[], None]
    leases: dict[str, Lease] = field(default_factory=dict)
    waiting: int = 0


class KVLeases:
    """One lease for each request, on every transport, because the reader chooses. Safe to use from any thread.

    Blocks are free when the leases of all transports have ended, by release or by time, and nobody reads any more.
    """

    def __init__(self, transports: Mapping[str, Transport]) -> None:
        self._transports = transports
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self.granted = 0
        self.freed = 0

    def grant(self, request_id: str, blocks: Sequence[int], seconds: float, on_free: Callable[[], None]) -> str:
        """Let readers pull blocks for so many seconds.

        Args:
            on_free: called once, from any thread.

        Returns:
            The leases by transport, as JSON, for `lease_for` on the reader's side.
        """
        held = _Held(tuple(blocks), on_free, waiting=len(self._transports))
        with self._lock:
            self._held[request_id] = held
            self.granted += 1
        for name, transport in self._transports.items():
            held.leases[name] = transport.reserve(held.blocks, seconds, on_free=lambda _: self._ended(request_id, held))
        return json.dumps({name: lease.to_dict() for name, lease in held.leases.items()})

    def release(self, request_id: str) -> bool:
        """End it now. True if there was one; twice is harmless."""
        with self._lock:
            held = self._held.get(request_id)
        if held is None:
            return False
        for name, lease in held.leases.items():
            self._transports[name].release(lease)
        return True

    def count(self) -> int:
        with self._lock:
            return len(self._held)

    def _ended(self, request_id: str, held: _Held) -> None:
        with self._lock:
            held.waiting -= 1
            last = held.waiting == 0
            first = held.waiting == len(self._transports) - 1
            if last:
                if self._held.get(request_id) is held:
                    del self._held[request_id]
                self.freed += 1
        if last:
            held.on_free()
        elif first:
            # The reader released it by its own transport: it is done with the others, too.
            for name, lease in list(held.leases.items()):
                self._transports[name].release(lease)


def lease_for(text: str, transport: str) -> Lease:
    """The lease that a reader names on one transport. Raises KeyError, TypeError or ValueError for nonsense."""
    return Lease.from_dict(json.loads(text)[transport])
