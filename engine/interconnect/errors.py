"""What can go wrong between two engines, each with a code that never changes and a word on trying again."""

from __future__ import annotations

from typing import ClassVar


class InterconnectError(Exception):
    """Base of every error that the interconnect raises on purpose.

    Attributes:
        code: stable identifier, snake case; it also names the error on the wire.
        retryable: True if the same call, with the same arguments, may succeed later.
    """

    code: ClassVar[str] = "interconnect_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Unavailable(InterconnectError):
    """The transport cannot work here: a library, a device or a kind of memory is missing."""

    code = "unavailable"


class AuthenticationFailed(InterconnectError):
    """The peer does not hold the shared secret."""

    code = "authentication_failed"


class LayoutMismatch(InterconnectError):
    """The KV caches hold different things (layers, heads, parts, data types): no repacking can help."""

    code = "layout_mismatch"


class PeerLost(InterconnectError):
    """The connection broke, or the peer spoke nonsense, which comes to the same."""

    code = "peer_lost"
    retryable = True


class StaleEpoch(InterconnectError):
    """The peer has restarted: what was leased there is gone. Fetch its metadata again."""

    code = "stale_epoch"


class DeadlineExceeded(InterconnectError):
    code = "deadline_exceeded"
    retryable = True


class LeaseExpired(InterconnectError):
    """The lease has ended or never was: the blocks may hold something else by now."""

    code = "lease_expired"


class ChecksumMismatch(InterconnectError):
    """Bytes arrived that were not sent. The local blocks are undefined; the remote ones are not affected."""

    code = "checksum_mismatch"
    retryable = True


class OutOfBounds(InterconnectError):
    """A block, layer or byte that the lease or the region does not cover."""

    code = "out_of_bounds"


class Backpressure(InterconnectError):
    """Too much is under way already, or a local block is still being written for somebody else."""

    code = "backpressure"
    retryable = True


class TransferCancelled(InterconnectError):
    code = "cancelled"


def from_code(code: str, message: str) -> InterconnectError:
    """The error that a peer reported; an unknown code means that the peer speaks nonsense."""
    kind = _BY_CODE.get(code)
    return kind(message) if kind else PeerLost(f"the peer reported the unknown error {code[:40]!r}")


_BY_CODE = {kind.code: kind for kind in InterconnectError.__subclasses__()}
