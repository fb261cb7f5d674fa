"""What all our own transports share: regions, leases, claims, the clock, and the life of connections."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from engine.interconnect import probe
from engine.interconnect.claims import Claims
from engine.interconnect.clock import Clock
from engine.interconnect.errors import LayoutMismatch, OutOfBounds, PeerLost, Unavailable
from engine.interconnect.lane import Lane
from engine.interconnect.layout import KVLayout, Offsets, require_fit
from engine.interconnect.leases import Lease, LeaseTable, OnFree, Pin
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import BATCH_BYTES
from engine.interconnect.pull import PullConnection
from engine.interconnect.regions import Region
from engine.interconnect.transport import DEFAULT_REGION, Transport


class Endpoint(Transport):
    """Base of the transports that we wrote ourselves.

    Args:
        engine_id: stays the same over restarts; at most 128 characters.
        lanes: transfers that one peer serves at once.
        most_waiting: transfers under way and waiting, per peer, before Backpressure.

    Raises:
        Unavailable: as `available()` says.
    """

    # Bytes of the first batch of a transfer, about.
    first_batch: ClassVar[int] = BATCH_BYTES

    def __init__(self, engine_id: str, *, lanes: int = 2, most_waiting: int = 256) -> None:
        self.require_available()
        if not 0 < len(engine_id) <= 128:
            raise ValueError("an engine id has 1 to 128 characters")
        self.engine_id = engine_id
        self.epoch = time.time_ns()
        self.lanes = lanes
        self.most_waiting = most_waiting
        self.clock = Clock(f"{self.name}-{engine_id}")
        self.leases = LeaseTable(engine_id, self.epoch, self.clock)
        self.claims = Claims()
        self._sealer = ThreadPoolExecutor(1, thread_name_prefix=f"seal-{engine_id}")
        self._regions: dict[str, Region] = {}
        self._connections: set[PullConnection] = set()
        self._lock = threading.Lock()
        self._closed = False
        buffer = self.probe_buffer()
        probe.fill(buffer)
        self._probe_lease = self.leases.reserve_for_ever(self.register(buffer, probe.LAYOUT, probe.REGION))

    def register(self, buffer: Any, layout: KVLayout, name: str = DEFAULT_REGION) -> Region:
        region = Region(name, buffer, layout)
        with self._lock:
            if name in self._regions:
                raise ValueError(f"region {name!r} is registered already")
            self._regions[name] = region
        return region

    def export_metadata(self) -> PeerMetadata:
        regions = {name: region.layout for name, region in self._regions.items()}
        return PeerMetadata(self.name, self.engine_id, self.epoch, self.address(), regions, self._probe_lease.id)

    def connect(self, peer: PeerMetadata, deadline: float) -> PullConnection:
        if self._closed:
            raise PeerLost("this transport is closed")
        if peer.transport != self.name:
            raise Unavailable(f"the peer's metadata is for {peer.transport}, this is {self.name}")
        for name, region in self._regions.items():
            if name in peer.regions:
                require_fit(peer.regions[name], region.layout)
            elif name != probe.REGION:
                raise LayoutMismatch(f"the peer has no region {name!r}")

        def open_lane(deadline: float, *, control: bool) -> Lane:
            return self.open_lane(peer, deadline, control=control)

        connection = PullConnection(self, peer, open_lane, deadline)
        with self._lock:
            self._connections.add(connection)
        return connection

    def reserve(
        self, blocks: Sequence[int], seconds: float, *, region: str = DEFAULT_REGION, on_free: OnFree | None = None
    ) -> Lease:
        lease = self.leases.reserve(self.region(region), blocks, seconds, on_free)
        self._sealer.submit(self.leases.seal, lease.id)
        return lease

    def renew(self, lease: Lease, seconds: float) -> None:
        self.leases.renew(lease.id, seconds)

    def release(self, lease: Lease) -> None:
        self.leases.release(lease.id)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        self.stop_serving()
        self.leases.close()
        self._sealer.shutdown(cancel_futures=True)
        self.clock.close()
        self._regions.clear()

    # For the rest of the package.

    def region(self, name: str) -> Region:
        """Raises OutOfBounds if there is none of that name."""
        region = self._regions.get(name)
        if region is None:
            raise OutOfBounds(f"no region {name!r} is registered")
        return region

    def pin(self, lease_id: str, region: str, offsets: Offsets, lengths: Offsets, until: float) -> Pin:
        """Let a peer read runs of bytes, until it drops the pin.

        Raises:
            LeaseExpired, OutOfBounds
        """
        pin = self.leases.pin(lease_id, until)
        try:
            if pin.region.name != region:
                raise OutOfBounds("the lease is on another region")
            pin.region.check_runs(offsets, lengths, pin.readable)
        except BaseException:
            pin.drop()
            raise
        return pin

    def require_available(self) -> None:
        """Raise Unavailable, with the reason, unless this transport can work here."""
        available = self.available()
        if not available.ok:
            raise Unavailable(f"{self.name}: {available.reason}")

    def forget(self, connection: PullConnection) -> None:
        """A connection has been closed."""
        with self._lock:
            self._connections.discard(connection)

    def probe_buffer(self) -> memoryview:
        """Memory for the region that peers measure with."""
        return memoryview(bytearray(probe.LAYOUT.span))

    def address(self) -> str:
        """Where peers find it."""
        return ""

    @abstractmethod
    def open_lane(self, peer: PeerMetadata, deadline: float, *, control: bool) -> Lane:
        """A lane to a peer, greeted and checked."""

    def stop_serving(self) -> None:
        """Stop serving peers."""
