"""One exchange at a time with one peer: ask for batches, move their bytes, compare checksums.

A lane on which anything went wrong is closed and never used again. That is the fence: a late answer finds no
reader, and so can never write into blocks that serve another request by then.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator

from engine.interconnect.digest import Digests
from engine.interconnect.errors import ChecksumMismatch, InterconnectError, PeerLost
from engine.interconnect.leases import Lease
from engine.interconnect.plan import Batch
from engine.interconnect.transfer import State, Transfer
from engine.interconnect.wire.messages import (
    Read,
    pack_json,
    unpack_digests,
    unpack_error,
)
from engine.interconnect.wire.session import Kind, Session


class Lane(ABC):
    """What a connection needs from a transport. Not for two threads at once, except `abort`."""

    @abstractmethod
    def read(self, transfer: Transfer, lease: Lease, batches: Iterator[Batch]) -> None:
        """Fetch all batches; returns when every checksum was right."""

    @abstractmethod
    def renew(self, lease: Lease, seconds: float) -> None: ...

    @abstractmethod
    def release(self, lease: Lease) -> None: ...

    def is_alive(self) -> bool:
        return True

    def abort(self) -> None:  # noqa: B027 - nothing to do for some
        """Make `read` end soon. From any thread."""

    def close(self) -> None:  # noqa: B027 - nothing to do for some
        """Give everything back."""


class SocketLane(Lane):
    """A lane whose requests and checksums go over a socket. What moves the bytes is left to `move`."""

    # Batches asked for ahead of the one whose bytes are being moved: the source never waits for a question.
    ahead = 2

    def __init__(self, session: Session) -> None:
        self.session = session
        self._transfers = 0

    @abstractmethod
    def move(self, batch: Batch, lease: Lease, transfer: Transfer) -> Digests:
        """Bring a batch's bytes into place; the checksums of what stands there then, run by run."""

    def read(self, transfer: Transfer, lease: Lease, batches: Iterator[Batch]) -> None:
        self._transfers += 1
        waiting: deque[Batch] = deque()
        for batch in batches:
            left = max(0, int((transfer.deadline - time.monotonic()) * 1000))
            request = Read(self._transfers, left, lease.id, lease.region, batch.remote, batch.lengths)
            self.session.send(Kind.READ, request.pack())
            waiting.append(batch)
            if len(waiting) > self.ahead:
                self._take(transfer, lease, waiting.popleft(), last=False)
        while waiting:
            batch = waiting.popleft()
            self._take(transfer, lease, batch, last=not waiting)
        self.session.send(Kind.FINISH, pack_json({"transfer": self._transfers}))

    def renew(self, lease: Lease, seconds: float) -> None:
        self.session.send(Kind.RENEW, pack_json({"lease": lease.id, "seconds": seconds}))
        self.expect(Kind.OK)

    def release(self, lease: Lease) -> None:
        self.session.send(Kind.RELEASE, pack_json({"lease": lease.id}))
        self.expect(Kind.OK)

    def expect(self, wanted: Kind) -> bytes:
        """The payload of the next frame, which must be of this kind, or the error that it reports."""
        kind, payload = self.session.receive()
        if kind is Kind.ERROR:
            raise unpack_error(payload)
        if kind is not wanted:
            raise PeerLost(f"the peer answered {kind.name} instead of {wanted.name}")
        return payload

    def is_alive(self) -> bool:
        return self.session.is_alive()

    def abort(self) -> None:
        self.session.abort()

    def close(self) -> None:
        self.session.close()

    def _take(self, transfer: Transfer, lease: Lease, batch: Batch, *, last: bool) -> None:
        transfer.check()
        here = self.move(batch, lease, transfer)
        if last:
            transfer.enter(State.VERIFYING)
        number, there = unpack_digests(self.expect(Kind.DIGEST))
        if number != self._transfers:
            raise PeerLost("the peer answered for another transfer")
        accept(batch, here, there, transfer)


def accept(batch: Batch, here: Digests, there: Digests, transfer: Transfer) -> None:
    """Compare checksums and put the batch to use. Raises ChecksumMismatch."""
    wrong = int((here != there).sum()) if len(here) == len(there) else len(here)
    if wrong or len(here) != len(there):
        raise ChecksumMismatch(f"{wrong} of {len(here)} runs of bytes are not what was leased")
    if batch.finish:
        batch.finish()
    transfer.moved += batch.nbytes


def as_interconnect_error(error: BaseException) -> InterconnectError:
    """What a broken lane means to its user, unless the transfer knows better (deadline, cancelled)."""
    if isinstance(error, InterconnectError):
        return error
    return PeerLost(f"{type(error).__name__}: {error}")
