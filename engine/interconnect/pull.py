"""A reader's connection: a bounded queue of transfers, a few lanes that carry them out, and one for leases.

Every transfer ends by its deadline: the clock aborts the lane that carries it, and if even that does not help
(a foreign library that cannot be interrupted), the transfer is failed while its blocks stay in quarantine.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.interconnect import probe
from engine.interconnect.errors import (
    Backpressure,
    DeadlineExceeded,
    InterconnectError,
    LeaseExpired,
    OutOfBounds,
    PeerLost,
    StaleEpoch,
)
from engine.interconnect.lane import Lane, as_interconnect_error
from engine.interconnect.leases import Lease
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import Batch, BlockPairs, batches
from engine.interconnect.regions import Region
from engine.interconnect.transfer import State, Transfer
from engine.interconnect.transport import Connection

if TYPE_CHECKING:
    from engine.interconnect.endpoint import Endpoint

GRACE_SECONDS = 1.0


class OpenLane(Protocol):
    """How a transport opens a lane. `control`: it will only carry renewals and releases."""

    def __call__(self, deadline: float, *, control: bool) -> Lane: ...


@dataclass(slots=True)
class _Job:
    transfer: Transfer
    lease: Lease
    batches: Iterator[Batch]


class PullConnection(Connection):
    """The connection of all transports that we wrote ourselves."""

    def __init__(self, endpoint: Endpoint, peer: PeerMetadata, open_lane: OpenLane, deadline: float) -> None:
        self.peer = peer
        self._endpoint = endpoint
        self._open_lane = open_lane
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._under_way: set[Transfer] = set()
        self._closed = False
        self._control_lock = threading.Lock()
        self._control: Lane | None = open_lane(deadline, control=True)

    def submit(self, lease: Lease, pairs: BlockPairs, layers: Sequence[int], deadline: float) -> Transfer:
        region = self._endpoint.region(lease.region)
        self._check(lease)
        if lease.region not in self.peer.regions:
            raise OutOfBounds(f"the peer has no region {lease.region!r}")
        if not set(pairs.remote) <= set(lease.blocks):
            raise OutOfBounds("a remote block that the lease does not cover")
        return self._start(lease, region, pairs, layers, deadline)

    def renew(self, lease: Lease, seconds: float, deadline: float) -> None:
        self._check(lease)
        self._ask(lambda lane: lane.renew(lease, seconds), deadline)

    def release(self, lease: Lease, deadline: float) -> None:
        self._check(lease)
        self._ask(lambda lane: lane.release(lease), deadline)

    def probe(self, nbytes: int, deadline: float) -> float:
        peer = self.peer
        blocks = tuple(range(probe.LAYOUT.blocks))
        lease = Lease(peer.probe_lease, peer.engine_id, peer.epoch, probe.REGION, blocks, 0.0)
        scratch = probe.scratch()
        moved, started = 0, time.monotonic()
        while moved < nbytes:
            transfer = self._start(lease, scratch, BlockPairs(blocks, blocks), (0,), deadline)
            transfer.result()
            moved += transfer.moved
        return moved / (time.monotonic() - started)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            under_way, threads = list(self._under_way), list(self._threads)
        for transfer in under_way:
            transfer.stop(PeerLost("the connection was closed"))
        for _ in threads:
            self._jobs.put(None)
        if self._control:
            self._control.abort()
        with self._control_lock:
            if self._control:
                self._control.close()
            self._control = None
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(GRACE_SECONDS)
        for transfer in under_way:
            # One that could not be stopped has no clock any more that would end it; its blocks stay claimed.
            transfer.fail(PeerLost("the connection was closed"), fenced=False)
        self._endpoint.forget(self)

    def _check(self, lease: Lease) -> None:
        if self._closed:
            raise PeerLost("the connection is closed")
        if lease.engine_id != self.peer.engine_id:
            raise LeaseExpired(f"the lease is of engine {lease.engine_id}, this is {self.peer.engine_id}")
        if lease.epoch != self.peer.epoch:
            raise StaleEpoch("the lease was granted by another incarnation of the engine")

    def _start(
        self, lease: Lease, region: Region, pairs: BlockPairs, layers: Sequence[int], deadline: float
    ) -> Transfer:
        """Claim the local blocks, queue the job, see that it ends."""
        transfer = Transfer(deadline)
        todo = batches(self.peer.regions[lease.region], region, pairs, layers, self._endpoint.first_batch)
        with self._lock:
            if self._closed:
                raise PeerLost("the connection is closed")
            if len(self._under_way) >= self._endpoint.most_waiting:
                raise Backpressure(f"{len(self._under_way)} transfers wait for this peer already")
            claim = self._endpoint.claims.claim(region, pairs.local)
            self._under_way.add(transfer)
            if self._busy >= len(self._threads) and len(self._threads) < self._endpoint.lanes:
                name = f"pull-{self.peer.engine_id}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            self._busy += 1
        transfer.when_fenced(lambda: self._settled(transfer, claim))
        clock = self._endpoint.clock
        late = DeadlineExceeded("the transfer was not finished by its deadline")
        timers = [
            clock.at(deadline, lambda: transfer.stop(late)),
            clock.at(deadline + GRACE_SECONDS, lambda: transfer.fail(late, fenced=False)),
        ]

        def done(_: Transfer) -> None:
            for timer in timers:
                timer.cancel()

        transfer.add_done_callback(done)
        self._jobs.put(_Job(transfer, lease, todo))
        return transfer

    def _settled(self, transfer: Transfer, release_claim: Callable[[], None]) -> None:
        release_claim()
        with self._lock:
            self._under_way.discard(transfer)
            self._busy -= 1

    def _work(self) -> None:
        """One lane's thread: takes jobs until the connection is closed."""
        lane: Lane | None = None
        while job := self._jobs.get():
            lane = self._carry_out(job, lane)
        if lane:
            lane.close()

    def _carry_out(self, job: _Job, lane: Lane | None) -> Lane | None:
        """The lane, if it can be used again."""
        transfer = job.transfer
        if transfer.is_fenced:
            return lane
        try:
            transfer.enter(State.HANDSHAKING)
            if lane and not lane.is_alive():
                lane.close()
                lane = None
            if lane is None:
                lane = self._open_lane(transfer.deadline, control=False)
            transfer.enter(State.READY, lane.abort)
            transfer.enter(State.TRANSFERRING)
            lane.read(transfer, job.lease, job.batches)
            done = transfer.succeed()
        except Exception as error:  # noqa: BLE001 - whatever breaks a lane ends this transfer, never the thread
            done = False
            failure = as_interconnect_error(error)
        else:
            failure = PeerLost("ended")
        if done:
            return lane
        # Closed before it is fenced: from here on nothing that still arrives can reach the blocks.
        if lane:
            lane.close()
        transfer.fail(failure, fenced=True)
        return None

    def _ask(self, call: Callable[[Lane], None], deadline: float) -> None:
        """Carry a renewal or a release over the control lane."""
        if not self._control_lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise DeadlineExceeded("another question to this peer was not answered in time")
        try:
            if self._closed:
                raise PeerLost("the connection is closed")
            if self._control and not self._control.is_alive():
                self._control.close()
                self._control = None
            lane = self._control = self._control or self._open_lane(deadline, control=True)
            with self._cut_off(lane, deadline):
                call(lane)
        except LeaseExpired:
            raise
        except InterconnectError:
            self._drop_control()
            raise
        except OSError as error:
            self._drop_control()
            raise PeerLost(str(error)) from None
        finally:
            self._control_lock.release()

    def _drop_control(self) -> None:
        if self._control:
            self._control.close()
        self._control = None

    @contextmanager
    def _cut_off(self, lane: Lane, deadline: float) -> Iterator[None]:
        timer = self._endpoint.clock.at(deadline, lane.abort)
        try:
            yield
        except (OSError, PeerLost):
            if time.monotonic() >= deadline:
                raise DeadlineExceeded("the peer did not answer in time") from None
            raise
        finally:
            timer.cancel()
