"""Both ends prove that they hold the shared secret, before either reads a length that the other chose.

Every message here has a fixed size, so a stranger can make the listener allocate nothing.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from contextlib import suppress

from engine.interconnect.errors import AuthenticationFailed, PeerLost

MAGIC = b"PMKV0001"
NONCE = 32
TAG = 32
LEAST_SECRET = 16


def as_client(sock: socket.socket, secret: bytes) -> tuple[bytes, bytes]:
    """The keys to (send with, receive with)."""
    mine = secrets.token_bytes(NONCE)
    sock.sendall(MAGIC + mine)
    answer = receive_exactly(sock, len(MAGIC) + NONCE + TAG)
    if answer[: len(MAGIC)] != MAGIC:
        raise PeerLost("the other end does not speak this protocol")
    theirs, proof = answer[len(MAGIC) : -TAG], answer[-TAG:]
    if not hmac.compare_digest(proof, _tag(secret, b"server", mine, theirs)):
        raise AuthenticationFailed("the peer does not hold the shared secret")
    sock.sendall(_tag(secret, b"client", mine, theirs))
    return _tag(secret, b"to server", mine, theirs), _tag(secret, b"to client", mine, theirs)


def as_server(sock: socket.socket, secret: bytes) -> tuple[bytes, bytes]:
    """The keys to (send with, receive with)."""
    hello = receive_exactly(sock, len(MAGIC) + NONCE)
    if hello[: len(MAGIC)] != MAGIC:
        raise PeerLost("the other end does not speak this protocol")
    theirs, mine = hello[len(MAGIC) :], secrets.token_bytes(NONCE)
    sock.sendall(MAGIC + mine + _tag(secret, b"server", theirs, mine))
    if not hmac.compare_digest(receive_exactly(sock, TAG), _tag(secret, b"client", theirs, mine)):
        raise AuthenticationFailed("the peer does not hold the shared secret")
    return _tag(secret, b"to client", theirs, mine), _tag(secret, b"to server", theirs, mine)


def check_secret(secret: bytes) -> bytes:
    """Raise ValueError for a secret that could be guessed: a listener answers strangers with a proof of it."""
    if len(secret) < LEAST_SECRET:
        raise ValueError(f"the shared secret needs at least {LEAST_SECRET} bytes")
    return secret


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes. Raises PeerLost at the end of the stream."""
    buffer = bytearray(size)
    receive_into(sock, memoryview(buffer))
    return bytes(buffer)


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill a buffer. Raises PeerLost at the end of the stream."""
    while view:
        got = sock.recv_into(view, 0, socket.MSG_WAITALL)
        if got == 0:
            raise PeerLost("the peer closed the connection")
        view = view[got:]


def shut_down(sock: socket.socket) -> None:
    """Wake up whoever is blocked on a socket. From any thread, in any state of it."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _tag(key: bytes, *what: bytes) -> bytes:
    return hmac.digest(key, b"|".join((MAGIC, *what)), "sha256")
