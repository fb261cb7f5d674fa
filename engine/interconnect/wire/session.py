"""Frames on a socket: each numbered and signed, none larger than its bound, bulk bytes straight from and into place.

A frame is a header (magic, kind, length, number), its payload and a tag over both under the session's key. A frame
that was seen already is skipped, one that is missing ends the session. Bulk bytes follow a frame that announces
them and are not signed; a signed checksum follows them.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum

from engine.interconnect.errors import ChecksumMismatch, PeerLost
from engine.interconnect.wire.handshake import receive_exactly, shut_down

HEADER = struct.Struct("!2sBxIQ")
MAGIC = b"PM"
TAG = 16
MAX_PAYLOAD = 1 << 20


class Kind(IntEnum):
    """What a frame says. The payload follows in `wire.messages`."""

    OPEN = 1
    OPENED = 2
    READ = 3
    DATA = 4
    DIGEST = 5
    FINISH = 6
    RENEW = 7
    RELEASE = 8
    OK = 9
    ERROR = 10


class Session:
    """One authenticated connection. Not for two threads at once, except `abort`."""

    def __init__(self, sock: socket.socket, keys: tuple[bytes, bytes]) -> None:
        self.sock = sock
        self._send_key, self._receive_key = keys
        self._sent = 0
        self._received = 0
        # Deadlines are kept by a clock that aborts the session; a timeout of its own would cost a poll per call.
        sock.settimeout(None)

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        head = HEADER.pack(MAGIC, kind, len(payload), self._sent)
        self._sent += 1
        tag = hmac.digest(self._send_key, head + payload, "sha256")[:TAG]
        self.sock.sendall(b"".join((head, payload, tag)))

    def receive(self, *, most: int = MAX_PAYLOAD) -> tuple[Kind, bytes]:
        """The next frame.

        Raises:
            PeerLost: the stream ended, a frame is missing, or this is no frame.
            ChecksumMismatch: the frame was changed on its way.
        """
        while True:
            head = receive_exactly(self.sock, HEADER.size)
            magic, kind, length, number = HEADER.unpack(head)
            if magic != MAGIC or length > most:
                raise PeerLost("the peer sent something that is no frame, or too large a one")
            body = receive_exactly(self.sock, length + TAG)
            payload, tag = body[:length], body[length:]
            expected = hmac.digest(self._receive_key, head + payload, "sha256")[:TAG]
            if not hmac.compare_digest(tag, expected):
                raise ChecksumMismatch("a control message was changed on its way")
            if number < self._received:
                continue
            if number > self._received:
                raise PeerLost("a control message is missing")
            self._received += 1
            try:
                return Kind(kind), payload
            except ValueError:
                raise PeerLost(f"the peer sent a message of unknown kind {kind}") from None

    def send_bytes(self, views: Sequence[memoryview]) -> None:
        """Bulk bytes, without copying them in this process."""
        left = sum(view.nbytes for view in views)
        sent = self.sock.sendmsg(views)
        while sent < left:
            left -= sent
            views = _after(views, sent)
            sent = self.sock.sendmsg(views)

    def receive_bytes(self, views: Sequence[memoryview]) -> Iterator[memoryview]:
        """Bulk bytes, straight into place; yields each piece that has arrived, in order, none over two views."""
        left = list(views)
        while left:
            # Takes what is there: waiting for more would let the source run out of room to send into.
            got = self.sock.recvmsg_into(left)[0]
            if got == 0:
                raise PeerLost("the peer closed the connection in the middle of a transfer")
            full = 0
            while got:
                view = left[full]
                if got < view.nbytes:
                    yield view[:got]
                    left[full] = view[got:]
                    break
                yield view
                got -= view.nbytes
                full += 1
            del left[:full]

    def is_alive(self) -> bool:
        """False if the peer has closed the connection, or sent what nobody asked for."""
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def abort(self) -> None:
        """Wake up whoever is blocked on this session. From any thread."""
        shut_down(self.sock)

    def close(self) -> None:
        self.abort()
        self.sock.close()


def _after(views: Sequence[memoryview], done: int) -> list[memoryview]:
    """What is left of some buffers once so many bytes of them are through."""
    for at, view in enumerate(views):
        if done < view.nbytes:
            return [view[done:], *views[at + 1 :]]
        done -= view.nbytes
    return []
