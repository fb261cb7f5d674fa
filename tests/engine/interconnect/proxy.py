"""A man in the middle who understands the protocol's frames, and so can lose, double, delay or damage just one.

He cannot read the keys, so whatever he changes must be noticed.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from engine.interconnect.transports.shared_memory import MAX_ARENAS, MAX_LISTING
from engine.interconnect.wire.handshake import MAGIC, NONCE
from engine.interconnect.wire.handshake import TAG as PROOF
from engine.interconnect.wire.session import HEADER, TAG, Kind

UP, DOWN = "up", "down"


@dataclass(frozen=True)
class Unit:
    """One piece of the stream.

    Attributes:
        direction: UP to the source, DOWN to the reader.
        kind: of the frame; None for the handshake and for bulk bytes.
        data: as it came.
        nth: how many units of this kind came before it in this direction, over all connections.
    """

    direction: str
    kind: Kind | None
    data: bytes
    nth: int


Rule = Callable[[Unit], Iterable[bytes]]


def forward(unit: Unit) -> Iterable[bytes]:
    """The rule that changes nothing."""
    return (unit.data,)


class Cut(Exception):
    """Raised by a rule: reset both sides, after sending so many bytes of the unit."""

    def __init__(self, after: bytes = b"") -> None:
        self.after = after


class Proxy:
    """Listens as if it were the source. `rule` may be changed at any time; `cut_after` counts bytes to the reader."""

    def __init__(self, target: str) -> None:
        self._unix = target.startswith("@")
        self._target = target
        self.rule: Rule = forward
        self.cut_after: int | None = None
        self.connections = 0
        self.passed = {UP: 0, DOWN: 0}
        self._counts: dict[tuple[str, Kind | None], int] = {}
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        if self._unix:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind("\0" + target[1:] + "-proxy")
            self._listener.listen(64)
            self.address = target + "-proxy"
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.cut_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def cut_all(self) -> None:
        """Reset every connection."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            _reset(sock)

    def _accept(self) -> None:
        while True:
            try:
                reader, _ = self._listener.accept()
            except OSError:
                return
            try:
                source = self._connect()
            except OSError:
                reader.close()
                continue
            self.connections += 1
            with self._lock:
                self._sockets += [reader, source]
            state = _Shared()
            for direction, origin, to in ((UP, reader, source), (DOWN, source, reader)):
                threading.Thread(target=self._pump, args=(direction, origin, to, state), daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._unix:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect("\0" + self._target[1:])
            return sock
        host, _, port = self._target.rpartition(":")
        return socket.create_connection((host, int(port)))

    def _pump(self, direction: str, origin: socket.socket, to: socket.socket, shared: _Shared) -> None:
        try:
            for kind, data in _units(direction, origin, to, shared, self._unix):
                with self._lock:
                    nth = self._counts[direction, kind] = self._counts.get((direction, kind), -1) + 1
                try:
                    for piece in self.rule(Unit(direction, kind, data, nth)):
                        self._send(direction, to, piece)
                except Cut as cut:
                    self._send(direction, to, cut.after)
                    raise ConnectionError from None
        except (OSError, ConnectionError, struct.error):
            _reset(origin)
            _reset(to)

    def _send(self, direction: str, to: socket.socket, data: bytes) -> None:
        if direction == DOWN and self.cut_after is not None and self.passed[DOWN] + len(data) > self.cut_after:
            data = data[: max(0, self.cut_after - self.passed[DOWN])]
            to.sendall(data)
            self.passed[DOWN] += len(data)
            raise ConnectionError
        to.sendall(data)
        self.passed[direction] += len(data)


class _Shared:
    """What one direction of a connection tells the other."""

    control = True


def _units(
    direction: str, origin: socket.socket, to: socket.socket, shared: _Shared, unix: bool
) -> Iterator[tuple[Kind | None, bytes]]:
    greeting = [len(MAGIC) + NONCE, PROOF] if direction == UP else [len(MAGIC) + NONCE + PROOF]
    for size in greeting:
        yield None, _exactly(origin, size)
    while True:
        head = _exactly(origin, HEADER.size)
        _, kind, length, _ = HEADER.unpack(head)
        body = _exactly(origin, length + TAG)
        payload = body[:length]
        if kind == Kind.OPEN:
            shared.control = bool(json.loads(payload)["control"])
        yield Kind(kind), head + body
        if kind == Kind.OPENED and unix and not shared.control:
            listing, fds, _, _ = socket.recv_fds(origin, MAX_LISTING, MAX_ARENAS, socket.MSG_WAITALL)
            socket.send_fds(to, [listing], fds)
            for fd in fds:
                socket.close(fd)
        if kind == Kind.DATA:
            left = struct.unpack("!QQ", payload)[1]
            while left:
                data = _exactly(origin, min(left, 1 << 16))
                left -= len(data)
                yield None, data


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = sock.recv(size - len(found))
        if not piece:
            raise ConnectionError
        found += piece
    return found


def _reset(sock: socket.socket) -> None:
    with suppress(OSError):
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
