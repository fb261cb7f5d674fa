"""What the foreign libraries share: our control protocol over TCP for leases and checksums, their engine for the bytes.

They address memory by address, so the base of each region is handed over inside the authenticated session, to
those who will read; our own messages name region and offset as everywhere. Whatever such a library reports, a
transfer is DONE only when the checksums are right.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.interconnect.digest import Digests, RunDigests
from engine.interconnect.errors import PeerLost
from engine.interconnect.lane import Lane, SocketLane
from engine.interconnect.layout import KVLayout
from engine.interconnect.leases import Lease, Pin
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import Batch
from engine.interconnect.regions import Bytes, Region
from engine.interconnect.seals import seed_of
from engine.interconnect.transfer import Transfer
from engine.interconnect.transport import DEFAULT_REGION, Capabilities, Reach
from engine.interconnect.transports.tcp import Tcp, tcp_session
from engine.interconnect.wire.messages import Read, pack_digests, pack_json, unpack_json
from engine.interconnect.wire.session import Kind, Session

Fetch = tuple[int, int, int]
BOUNCE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """Some memory of this process that a foreign engine may be told of."""

    name: str
    address: int
    size: int

    def holds(self, address: int, size: int) -> bool:
        return self.address <= address and address + size <= self.address + self.size


class Link(ABC):
    """A foreign engine's way to one peer."""

    @abstractmethod
    def read(self, region: str, fetches: Sequence[Fetch], transfer: Transfer) -> None:
        """Fetch (offset in the peer's region, local address, bytes); returns when all have arrived.

        Nothing may write into the local addresses any more when it returns or raises.
        """

    def close(self) -> None:  # noqa: B027 - nothing to do for some
        """Give up what the link holds."""


class Mover(ABC):
    """One foreign engine of this process."""

    @abstractmethod
    def register(self, memory: Memory) -> None:
        """Let peers read some memory, and let it be written by reads."""

    @abstractmethod
    def introduce(self) -> dict[str, Any]:
        """What a reader tells a source about itself; JSON-ready."""

    @abstractmethod
    def answer(self, theirs: dict[str, Any]) -> dict[str, Any]:
        """What a source tells a reader in return."""

    @abstractmethod
    def link(self, introduced: dict[str, Any], theirs: dict[str, Any]) -> Link:
        """The way to a source, from what both have said."""

    def close(self) -> None:  # noqa: B027 - nothing to do for some
        """Let go of all regions."""


class OneSided(Tcp):
    """Base of the transports whose bytes are moved by a foreign engine. Never chosen unless asked for by name."""

    def __init__(self, engine_id: str, mover: Mover, **options: Any) -> None:
        self._mover = mover
        self._mover_lock = threading.Lock()
        self._known: list[Memory] = []
        self._bounces: queue.SimpleQueue[Bytes] = queue.SimpleQueue()
        super().__init__(engine_id, **options)

    @classmethod
    def capabilities(cls) -> Capabilities:
        return Capabilities(Reach.NETWORK, True, False, True, cls.__doc__ or "")

    def register(self, buffer: Any, layout: KVLayout, name: str = DEFAULT_REGION) -> Region:
        region = super().register(buffer, layout, name)
        self._tell(Memory(name, region.address, region.bytes.nbytes))
        return region

    def open_lane(self, peer: PeerMetadata, deadline: float, *, control: bool) -> Lane:
        session = tcp_session(self, peer, deadline, control=control)
        try:
            if control:
                return _MovedLane(session, self, None)
            with self._mover_lock:
                ours = self._mover.introduce()
            session.send(Kind.OK, pack_json(ours))
            kind, payload = session.receive()
            if kind is not Kind.OK:
                raise PeerLost("the peer did not introduce its engine")
            with self._mover_lock:
                return _MovedLane(session, self, self._mover.link(ours, unpack_json(payload)))
        except BaseException:
            session.close()
            raise

    def fetch(self, link: Link, region: str, batch: Batch, transfer: Transfer) -> None:
        """Bring a batch's bytes into place; over a buffer that the engine knows if it does not know the place."""
        base = int(batch.target.__array_interface__["data"][0])
        if any(memory.holds(base, batch.target.nbytes) for memory in self._known):
            link.read(region, _fetches(batch, base), transfer)
            return
        try:
            bounce = self._bounces.get_nowait()
        except queue.Empty:
            bounce = np.empty(BOUNCE_BYTES, np.uint8)
            address = int(bounce.__array_interface__["data"][0])
            self._tell(Memory(f"bounce-{address}", address, bounce.nbytes))
        for offset, local, size in _fetches(batch, 0):
            for start in range(0, size, bounce.nbytes):
                length = min(bounce.nbytes, size - start)
                address = int(bounce.__array_interface__["data"][0])
                link.read(region, [(offset + start, address, length)], transfer)
                batch.target[local + start : local + start + length] = bounce[:length]
        # Not after an error: something may still write into it.
        self._bounces.put(bounce)

    def stop_serving(self) -> None:
        super().stop_serving()
        self._mover.close()

    def answer_read(self, session: Session, read: Read, pin: Pin) -> bool:
        session.send(Kind.DIGEST, pack_digests(read.transfer, pin.seals.of(read.offsets, read.lengths)))
        return True

    def greet(self, session: Session) -> None:
        kind, payload = session.receive(most=1 << 16)
        if kind is not Kind.OK:
            raise PeerLost("the reader did not introduce its engine")
        with self._mover_lock:
            session.send(Kind.OK, pack_json(self._mover.answer(unpack_json(payload))))

    def _tell(self, memory: Memory) -> None:
        with self._mover_lock:
            self._mover.register(memory)
            self._known.append(memory)


class _MovedLane(SocketLane):
    def __init__(self, session: Session, endpoint: OneSided, link: Link | None) -> None:
        super().__init__(session)
        self._endpoint = endpoint
        self._link = link

    def move(self, batch: Batch, lease: Lease, transfer: Transfer) -> Digests:
        assert self._link is not None
        self._endpoint.fetch(self._link, lease.region, batch, transfer)
        digests = RunDigests(batch.lengths.tolist(), seed_of(lease.id))
        for view in batch.views():
            digests.update(view)
        return digests.result()

    def close(self) -> None:
        super().close()
        if self._link:
            self._link.close()


def _fetches(batch: Batch, base: int) -> list[Fetch]:
    starts = iter(batch.remote.tolist())
    found: list[Fetch] = []
    start = 0
    for within, there, size in batch.fragments:
        if within == 0:
            start = next(starts)
        found.append((start + within, base + there, size))
    return found


def rdma_devices() -> list[str]:
    """Names of the RDMA devices that the kernel knows."""
    folder = Path("/sys/class/infiniband")
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def bases_in(content: dict[str, Any]) -> dict[str, int]:
    """Base address of each of a peer's regions. Raises PeerLost if they are none."""
    bases = content.get("bases")
    if not isinstance(bases, dict) or not all(isinstance(base, int) and base >= 0 for base in bases.values()):
        raise PeerLost("the peer sent no bases of its regions")
    return bases
