"""The one interface of all transports. Callers know this file, metadata, leases, pairs and the transfer's handle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from engine.interconnect.layout import KVLayout
from engine.interconnect.leases import Lease, OnFree
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import BlockPairs
from engine.interconnect.regions import Region
from engine.interconnect.transfer import Transfer

DEFAULT_REGION = "kv"


class Reach(Enum):
    """How far a transport goes."""

    PROCESS = "the same process"
    HOST = "processes of one host"
    NETWORK = "hosts of one network"


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a transport can work on this machine, and why not."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a transport can do.

    Attributes:
        reach: how far it goes.
        only_by_name: it is never chosen unless somebody asked for it by name.
        needs_arena: buffers must lie in a `SharedArena`.
        authenticated: peers prove a shared secret.
        how: a few words on what moves the bytes.
    """

    reach: Reach
    only_by_name: bool
    needs_arena: bool
    authenticated: bool
    how: str


class Transport(ABC):
    """One engine's end of one kind of interconnect. Safe to use from any thread.

    As a source it registers buffers and grants leases; as a reader it connects to peers and pulls.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def available(cls) -> Availability:
        """Looks for libraries and devices; opens nothing."""

    @classmethod
    @abstractmethod
    def capabilities(cls) -> Capabilities: ...

    @abstractmethod
    def register(self, buffer: Any, layout: KVLayout, name: str = DEFAULT_REGION) -> Region:
        """Make a buffer known, as source and as destination.

        Raises:
            ValueError: the layout does not fit the buffer, or the name is taken.
            Unavailable: the transport cannot reach this kind of memory.
        """

    @abstractmethod
    def export_metadata(self) -> PeerMetadata:
        """What a peer needs in order to connect."""

    @abstractmethod
    def connect(self, peer: PeerMetadata, deadline: float) -> Connection:
        """Greet a peer and compare layouts; by the deadline, an instant of `time.monotonic()`.

        Raises:
            LayoutMismatch: before any byte is sent.
            AuthenticationFailed, StaleEpoch, PeerLost, DeadlineExceeded, Backpressure, Unavailable
        """

    @abstractmethod
    def reserve(
        self, blocks: Sequence[int], seconds: float, *, region: str = DEFAULT_REGION, on_free: OnFree | None = None
    ) -> Lease:
        """Let peers read blocks until the lease ends; see `LeaseTable.reserve`."""

    @abstractmethod
    def renew(self, lease: Lease, seconds: float) -> None:
        """Let it end so many seconds from now. Raises LeaseExpired."""

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """End it now; `on_free` is called when nobody reads any more."""

    @abstractmethod
    def close(self) -> None:
        """End all leases and connections, free every descriptor. Twice is harmless."""


class Connection(ABC):
    """A reader's link to one incarnation of one peer. Safe to use from any thread."""

    peer: PeerMetadata

    @abstractmethod
    def submit(self, lease: Lease, pairs: BlockPairs, layers: Sequence[int], deadline: float) -> Transfer:
        """Start to pull blocks into the local region of the same name.

        Args:
            deadline: instant of `time.monotonic()` by which it is DONE or has FAILED.

        Raises:
            OutOfBounds: a block or layer that does not exist.
            Backpressure: too many transfers wait, or a local block is not yet safe after an earlier transfer.
            StaleEpoch: the lease is of another incarnation.
            PeerLost: the connection is closed.
        """

    @abstractmethod
    def renew(self, lease: Lease, seconds: float, deadline: float) -> None:
        """As `Transport.renew`, from the reader's side."""

    @abstractmethod
    def release(self, lease: Lease, deadline: float) -> None:
        """As `Transport.release`, from the reader's side."""

    @abstractmethod
    def probe(self, nbytes: int, deadline: float) -> float:
        """Bytes a second, checks included, by pulling random bytes that the peer keeps for this."""

    @abstractmethod
    def close(self) -> None:
        """Stop what is under way. Twice is harmless."""
