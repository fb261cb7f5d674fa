"""Between engines of one process: plain copies. For tests, for demonstrations, and as the measure of the others."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

from engine.interconnect.copying import copy_batch
from engine.interconnect.endpoint import Endpoint
from engine.interconnect.errors import PeerLost, StaleEpoch
from engine.interconnect.lane import Lane, accept
from engine.interconnect.leases import Lease
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import Batch
from engine.interconnect.seals import seed_of
from engine.interconnect.transfer import State, Transfer
from engine.interconnect.transport import Availability, Capabilities, Reach

_living: weakref.WeakValueDictionary[str, InProcess] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class InProcess(Endpoint):
    """Peers are found by their engine id among the living ones of this process."""

    name = "in_process"

    def __init__(self, engine_id: str, *, lanes: int = 2, most_waiting: int = 256) -> None:
        super().__init__(engine_id, lanes=lanes, most_waiting=most_waiting)
        with _lock:
            _living[engine_id] = self

    @classmethod
    def available(cls) -> Availability:
        return Availability(True)

    @classmethod
    def capabilities(cls) -> Capabilities:
        return Capabilities(Reach.PROCESS, False, False, False, "copies in memory")

    def open_lane(self, peer: PeerMetadata, deadline: float, *, control: bool) -> Lane:
        lane = _DirectLane(peer)
        lane.source()
        return lane

    def stop_serving(self) -> None:
        with _lock:
            if _living.get(self.engine_id) is self:
                del _living[self.engine_id]


class _DirectLane(Lane):
    def __init__(self, peer: PeerMetadata) -> None:
        self._peer = peer

    def source(self) -> InProcess:
        """The peer. Raises PeerLost if it is gone, StaleEpoch if another incarnation took its place."""
        with _lock:
            source = _living.get(self._peer.engine_id)
        if source is None:
            raise PeerLost(f"no engine {self._peer.engine_id!r} lives in this process")
        if source.epoch != self._peer.epoch:
            raise StaleEpoch("the engine has restarted")
        return source

    def read(self, transfer: Transfer, lease: Lease, batches: Iterator[Batch]) -> None:
        for batch in batches:
            transfer.check()
            pin = self.source().pin(lease.id, lease.region, batch.remote, batch.lengths, transfer.deadline)
            try:
                there = pin.seals.of(batch.remote, batch.lengths)
                here = copy_batch(pin.region.bytes, batch, seed_of(lease.id), transfer.check)
            finally:
                pin.drop()
            accept(batch, here, there, transfer)
        transfer.enter(State.VERIFYING)

    def renew(self, lease: Lease, seconds: float) -> None:
        self.source().leases.renew(lease.id, seconds)

    def release(self, lease: Lease) -> None:
        self.source().leases.release(lease.id)
