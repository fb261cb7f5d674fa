"""Opening a session: connect, prove the secret, name the incarnation that is meant, learn what it has."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from engine.interconnect.clock import Clock
from engine.interconnect.errors import DeadlineExceeded, InterconnectError, LayoutMismatch, PeerLost
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.wire.handshake import as_client, shut_down
from engine.interconnect.wire.messages import pack_json, unpack_error
from engine.interconnect.wire.session import Kind, Session

CONNECT_SECONDS = 5.0


def open_session(
    connect: Callable[[float], socket.socket],
    secret: bytes,
    peer: PeerMetadata,
    clock: Clock,
    deadline: float,
    *,
    control: bool,
) -> Session:
    """A session with one incarnation of a peer.

    Args:
        connect: opens the socket within so many seconds.
        control: this session will not read.

    Raises:
        PeerLost, AuthenticationFailed, StaleEpoch, LayoutMismatch, Backpressure, DeadlineExceeded
    """
    sooner = min(deadline, time.monotonic() + CONNECT_SECONDS)
    if sooner <= time.monotonic():
        raise DeadlineExceeded("no time left to connect")
    try:
        sock = connect(sooner - time.monotonic())
    except OSError as error:
        raise _explained(error, deadline) from None
    timer = clock.at(sooner, lambda: shut_down(sock))
    try:
        session = Session(sock, as_client(sock, secret))
        session.send(Kind.OPEN, pack_json({"engine_id": peer.engine_id, "epoch": peer.epoch, "control": control}))
        _check(peer, *session.receive())
    except (OSError, InterconnectError) as error:
        sock.close()
        raise _explained(error, deadline) from None
    finally:
        timer.cancel()
    return session


def _check(peer: PeerMetadata, kind: Kind, payload: bytes) -> None:
    if kind is Kind.ERROR:
        raise unpack_error(payload)
    if kind is not Kind.OPENED:
        raise PeerLost(f"the peer greeted with {kind.name}")
    found = PeerMetadata.from_json(payload)
    if any(found.regions.get(name) != layout for name, layout in peer.regions.items()):
        raise LayoutMismatch("the peer's layouts are not those of its metadata")


def _explained(error: OSError | InterconnectError, deadline: float) -> InterconnectError:
    if time.monotonic() >= deadline:
        return DeadlineExceeded("the peer did not answer in time")
    if isinstance(error, InterconnectError):
        return error
    return PeerLost(f"cannot connect: {error}")
