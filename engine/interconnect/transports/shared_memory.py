"""Between processes of one host: the source's arena is mapped, read-only, by the reader, which copies from it.

Questions and checksums go over a Unix socket.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import secrets
import socket
from pathlib import Path
from typing import Any

import numpy as np

from engine.interconnect import probe
from engine.interconnect.arena import SharedArena
from engine.interconnect.copying import Copier
from engine.interconnect.digest import Digests
from engine.interconnect.endpoint import Endpoint
from engine.interconnect.errors import LayoutMismatch, OutOfBounds, PeerLost, Unavailable
from engine.interconnect.lane import Lane, SocketLane
from engine.interconnect.layout import KVLayout
from engine.interconnect.leases import Lease, Pin
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import Batch
from engine.interconnect.regions import Bytes, Region
from engine.interconnect.seals import seed_of
from engine.interconnect.transfer import Transfer
from engine.interconnect.transport import DEFAULT_REGION, Availability, Capabilities, Reach
from engine.interconnect.wire.client import open_session
from engine.interconnect.wire.handshake import check_secret
from engine.interconnect.wire.messages import Read, pack_digests
from engine.interconnect.wire.server import Server
from engine.interconnect.wire.session import Kind, Session

MAX_ARENAS = 16
MAX_LISTING = 4096


class SharedMemory(Endpoint):
    """Registered buffers must lie in a `SharedArena`.

    Args:
        secret: shared by all engines, at least 16 bytes.
        path: of the Unix socket. By default one without a place in the file system, which vanishes with the
            process; containers that share nothing but a folder need a path in it.
        copiers: threads that copy one large transfer; by default one for each core, at most four.
    """

    name = "shared_memory"

    def __init__(
        self,
        engine_id: str,
        *,
        secret: bytes,
        path: Path | None = None,
        lanes: int = 2,
        most_waiting: int = 256,
        copiers: int | None = None,
    ) -> None:
        self._secret = check_secret(secret)
        self._shared: dict[str, tuple[SharedArena, int]] = {}
        super().__init__(engine_id, lanes=lanes, most_waiting=most_waiting)
        self._copier = Copier(copiers or min(4, os.cpu_count() or 1), lanes, f"copy-{engine_id}")
        self._path = path
        self._address = str(path) if path else f"@pagemill-{os.getpid()}-{secrets.token_hex(8)}"
        self._server = Server(self, _listen(self._address), self._secret, _answer, self._pass_arenas)

    @classmethod
    def available(cls) -> Availability:
        if not hasattr(os, "memfd_create") or not hasattr(socket, "AF_UNIX"):
            return Availability(False, "this system has no anonymous shared files (memfd) or no Unix sockets")
        return Availability(True)

    @classmethod
    def capabilities(cls) -> Capabilities:
        return Capabilities(Reach.HOST, False, True, True, "copies out of the peer's arena, mapped read-only")

    def register(self, buffer: Any, layout: KVLayout, name: str = DEFAULT_REGION) -> Region:
        found = SharedArena.containing(Region(name, buffer, layout).address, layout.span)
        if found is None:
            raise Unavailable("shared_memory: the buffer does not lie in a SharedArena of this process")
        if len({id(arena) for arena, _ in (*self._shared.values(), found)}) > MAX_ARENAS:
            raise ValueError(f"at most {MAX_ARENAS} arenas")
        region = super().register(buffer, layout, name)
        self._shared[name] = found
        return region

    def probe_buffer(self) -> memoryview:
        self._probe_arena = SharedArena(probe.LAYOUT.span)
        return self._probe_arena.buffer

    def address(self) -> str:
        return self._address

    def open_lane(self, peer: PeerMetadata, deadline: float, *, control: bool) -> Lane:
        def connect(seconds: float) -> socket.socket:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(seconds)
                sock.connect(_native(peer.address))
            except BaseException:
                sock.close()
                raise
            return sock

        session = open_session(connect, self._secret, peer, self.clock, deadline, control=control)
        try:
            return _ArenaLane(session, {} if control else _map_arenas(session, peer), self._copier)
        except BaseException:
            session.close()
            raise

    def stop_serving(self) -> None:
        self._server.close()
        self._copier.close()
        if self._path:
            self._path.unlink(missing_ok=True)
        self._shared.clear()

    def _pass_arenas(self, session: Session) -> None:
        shared = dict(self._shared)
        fds = list(dict.fromkeys(arena.fd for arena, _ in shared.values()))
        listing = {name: (fds.index(arena.fd), offset) for name, (arena, offset) in shared.items()}
        content = json.dumps(listing).encode()
        socket.send_fds(session.sock, [content.ljust(MAX_LISTING)], fds)


class _ArenaLane(SocketLane):
    # The source answers while the bytes are copied; there is nothing to wait for.
    ahead = 0

    def __init__(self, session: Session, sources: dict[str, Bytes], copier: Copier) -> None:
        super().__init__(session)
        self._sources = sources
        self._copier = copier

    def move(self, batch: Batch, lease: Lease, transfer: Transfer) -> Digests:
        source = self._sources.get(lease.region)
        if source is None:
            raise OutOfBounds(f"region {lease.region!r} was registered after this connection was made")
        if int((batch.remote + batch.lengths).max(initial=0)) > source.nbytes:
            raise OutOfBounds("bytes outside the peer's arena")
        return self._copier.copy(source, batch, seed_of(lease.id), transfer.check)

    def close(self) -> None:
        super().close()
        # The mappings go with the last view of them.
        self._sources = {}


def _answer(session: Session, read: Read, pin: Pin) -> bool:
    """Answer a READ with the checksum only: the reader takes the bytes itself, and says when it has them."""
    session.send(Kind.DIGEST, pack_digests(read.transfer, pin.seals.of(read.offsets, read.lengths)))
    return True


def _map_arenas(session: Session, peer: PeerMetadata) -> dict[str, Bytes]:
    """Map what the peer passes, as far as its metadata says; nothing it passes stays open."""
    content, fds, _, _ = socket.recv_fds(session.sock, MAX_LISTING, MAX_ARENAS, socket.MSG_WAITALL)
    try:
        listing = json.loads(content) if len(content) == MAX_LISTING else {}
        found = {}
        for name, layout in peer.regions.items():
            index, offset = listing[name]
            fd = fds[index]
            if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                raise PeerLost("the peer passed an arena that it could shrink")
            if offset < 0 or offset + layout.span > os.fstat(fd).st_size:
                raise LayoutMismatch("the peer's arena is smaller than its layout")
            mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
            found[name] = np.frombuffer(mapped, np.uint8, layout.span, offset)
        return found
    except (KeyError, IndexError, TypeError, ValueError, OSError) as error:
        raise PeerLost(f"the peer passed no arena: {error}") from None
    finally:
        for fd in fds:
            os.close(fd)


def _listen(address: str) -> socket.socket:
    """Raises OSError if another process listens there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not address.startswith("@") and Path(address).is_socket() and not _somebody_listens(address):
            Path(address).unlink()
        listener.bind(_native(address))
        if not address.startswith("@"):
            os.chmod(address, 0o600)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def _somebody_listens(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(1.0)
        return sock.connect_ex(address) == 0


def _native(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address
