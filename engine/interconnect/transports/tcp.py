"""Over TCP: bytes go from the source's cache to the socket and from the socket into place, without a copy between."""

from __future__ import annotations

import socket
import struct

from engine.interconnect.digest import Digests, RunDigests, cut, groups, stretches
from engine.interconnect.endpoint import Endpoint
from engine.interconnect.errors import PeerLost
from engine.interconnect.lane import Lane, SocketLane
from engine.interconnect.leases import Lease, Pin
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import Batch
from engine.interconnect.seals import seed_of
from engine.interconnect.transfer import Transfer
from engine.interconnect.transport import Availability, Capabilities, Reach
from engine.interconnect.wire.client import open_session
from engine.interconnect.wire.handshake import check_secret
from engine.interconnect.wire.messages import Read, pack_digests
from engine.interconnect.wire.server import Server
from engine.interconnect.wire.session import Kind, Session

# Bytes of a system call, about. Each call wakes the other end, too.
SEND_BYTES = 16 << 20
# No more than a core's own cache keeps until they have been checked.
RECEIVE_BYTES = 512 << 10
_DATA = struct.Struct("!QQ")


class Tcp(Endpoint):
    """Listens on one address, by default of this host only.

    Args:
        secret: shared by all engines, at least 16 bytes. It authenticates; it does not encrypt.
        host, port: where to listen; 0 takes a free port.
        advertise: host name that peers are told, if it differs.
    """

    name = "tcp"
    # Small, so that bytes are on their way while the rest is asked for.
    first_batch = 4 << 20

    def __init__(
        self,
        engine_id: str,
        *,
        secret: bytes,
        host: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        lanes: int = 2,
        most_waiting: int = 256,
    ) -> None:
        self.secret = check_secret(secret)
        super().__init__(engine_id, lanes=lanes, most_waiting=most_waiting)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
        self._host, self._port = advertise or host, listener.getsockname()[1]
        self._server = Server(self, listener, self.secret, self.answer_read, self.greet, _tuned)

    @classmethod
    def available(cls) -> Availability:
        return Availability(True)

    @classmethod
    def capabilities(cls) -> Capabilities:
        return Capabilities(Reach.NETWORK, False, False, True, "a TCP socket")

    def address(self) -> str:
        return f"{self._host}:{self._port}"

    def open_lane(self, peer: PeerMetadata, deadline: float, *, control: bool) -> Lane:
        return _TcpLane(tcp_session(self, peer, deadline, control=control))

    def stop_serving(self) -> None:
        self._server.close()

    # What transports that only talk over TCP do differently.

    def answer_read(self, session: Session, read: Read, pin: Pin) -> bool:
        """Send the bytes themselves."""
        session.send(Kind.DATA, _DATA.pack(read.transfer, int(read.lengths.sum())))
        for group in groups(stretches(pin.region.memory, read.offsets, read.lengths), SEND_BYTES):
            session.send_bytes(group)
        session.send(Kind.DIGEST, pack_digests(read.transfer, pin.seals.of(read.offsets, read.lengths)))
        return False

    def greet(self, session: Session) -> None:
        """Nothing more to say to a reader."""


class _TcpLane(SocketLane):
    def move(self, batch: Batch, lease: Lease, transfer: Transfer) -> Digests:
        content = self.expect(Kind.DATA)
        if len(content) != _DATA.size or _DATA.unpack(content) != (self._transfers, batch.nbytes):
            raise PeerLost("the peer sends something else than was asked for")
        digests = RunDigests(batch.lengths.tolist(), seed_of(lease.id))
        for group in groups(cut(batch.views(), RECEIVE_BYTES), RECEIVE_BYTES):
            for piece in self.session.receive_bytes(group):
                digests.update(piece)
            transfer.check()
        return digests.result()


def tcp_session(endpoint: Tcp, peer: PeerMetadata, deadline: float, *, control: bool) -> Session:
    """An open session with a peer; see `open_session`."""
    host, _, port = peer.address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise PeerLost(f"{peer.address[:80]!r} is no host and port")

    def connect(seconds: float) -> socket.socket:
        return _tuned(socket.create_connection((host, int(port)), seconds))

    return open_session(connect, endpoint.secret, peer, endpoint.clock, deadline, control=control)


def _tuned(sock: socket.socket) -> socket.socket:
    # At both ends: a checksum that waits for the other end to acknowledge the bytes before it is 40 ms late.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A host that vanished without a word is noticed within a minute, even while nothing is sent.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
