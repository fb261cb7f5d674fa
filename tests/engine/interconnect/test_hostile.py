"""Strangers and liars at the socket: nothing is allocated on their word, nobody else notices them."""

from __future__ import annotations

import json
import random
import resource
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from engine.interconnect.errors import AuthenticationFailed, InterconnectError, LayoutMismatch, PeerLost
from engine.interconnect.layout import KVLayout
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.plan import BlockPairs
from engine.interconnect.transports.tcp import Tcp
from engine.interconnect.wire import handshake, messages
from engine.interconnect.wire.session import HEADER, MAX_PAYLOAD, Kind, Session
from tests.engine.interconnect.harness import LAYOUT, SECRET, Engine, dial, opened, soon

Make = Callable[..., Engine]


def hang_up(sock: socket.socket) -> None:
    """Say that nothing more comes, unless the other end has hung up already."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


def is_hung_up(sock: socket.socket) -> bool:
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def still_serves(source: Engine, engines: Make, kind: str) -> None:
    reader = engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([1], 30)
    connection.submit(lease, BlockPairs.of([1], [2]), range(LAYOUT.layers), soon()).result()
    assert reader.block(2) == source.block(1)


def test_noise_is_hung_up_on(socket_kind: str, engines: Make) -> None:
    source = engines(socket_kind, "source")
    noise = random.Random(3)
    for size in (0, 1, 8, 39, 40, 72, 100, 5000):
        for start in (b"", handshake.MAGIC):
            with dial(source) as sock:
                sock.sendall(start + noise.randbytes(size))
                hang_up(sock)
                assert is_hung_up(sock)
    still_serves(source, engines, socket_kind)


def test_a_stranger_is_refused_both_ways(socket_kind: str, engines: Make) -> None:
    source = engines(socket_kind, "source")
    stranger = engines(socket_kind, "stranger", secret=b"another secret of 16 bytes")
    with pytest.raises(AuthenticationFailed) as refused:
        stranger.transport.connect(source.metadata, soon())
    assert not refused.value.retryable
    # One who skips the check of the server's proof gets no further.
    with dial(source) as sock:
        sock.sendall(handshake.MAGIC + bytes(handshake.NONCE))
        handshake.receive_exactly(sock, len(handshake.MAGIC) + handshake.NONCE + handshake.TAG)
        sock.sendall(bytes(handshake.TAG))
        assert is_hung_up(sock)


def test_a_proof_cannot_be_used_twice(socket_kind: str, engines: Make) -> None:
    source = engines(socket_kind, "source")
    with dial(source) as first, dial(source) as second:
        hello = handshake.MAGIC + bytes(handshake.NONCE)
        answers = []
        for sock in (first, second):
            sock.sendall(hello)
            answers.append(handshake.receive_exactly(sock, len(handshake.MAGIC) + handshake.NONCE + handshake.TAG))
        assert answers[0] != answers[1]


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        Tcp("engine", secret=b"short")


def test_a_frame_of_four_gigabytes_is_not_waited_for(socket_kind: str, engines: Make) -> None:
    source = engines(socket_kind, "source")
    session = opened(source)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    session.sock.sendall(HEADER.pack(b"PM", Kind.READ, 0xFFFFFFFF, 1))
    assert is_hung_up(session.sock)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    session.close()
    still_serves(source, engines, socket_kind)


@pytest.mark.parametrize(
    "frame",
    [
        HEADER.pack(b"XX", Kind.READ, 0, 1) + bytes(16),
        HEADER.pack(b"PM", 99, 0, 1) + bytes(16),
        HEADER.pack(b"PM", Kind.READ, 4, 1) + bytes(20),
        HEADER.pack(b"PM", Kind.READ, MAX_PAYLOAD + 1, 1),
    ],
    ids=["magic", "kind", "unsigned", "too long"],
)
def test_a_frame_that_is_none_ends_the_session(socket_kind: str, engines: Make, frame: bytes) -> None:
    source = engines(socket_kind, "source")
    session = opened(source)
    session.sock.sendall(frame)
    assert is_hung_up(session.sock)
    session.close()
    still_serves(source, engines, socket_kind)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("payload", [b"", b"{}", b"[1]", b"null", b"\xff" * 64, b"[" * 50_000, bytes(120)])
def test_signed_nonsense_ends_the_session_and_nothing_else(
    socket_kind: str, engines: Make, kind: Kind, payload: bytes
) -> None:
    source = engines(socket_kind, "source")
    session = opened(source)
    session.send(kind, payload)
    hang_up(session.sock)
    assert is_hung_up(session.sock)
    session.close()
    assert source.transport.leases.held_blocks() == 0


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, LAYOUT.span * 2), (1, 16), (LAYOUT.span, 512), (1 << 61, 512), (0, 0), (0, 1), (512, 4_000_000_000)],
)
def test_runs_outside_the_leased_chunks_are_refused(socket_kind: str, engines: Make, offset: int, length: int) -> None:
    source = engines(socket_kind, "source")
    lease = source.transport.reserve([0, 1], 30)
    session = opened(source)
    read = messages.Read(1, 1000, lease.id, "kv", np.asarray([offset]), np.asarray([length]))
    session.send(Kind.READ, read.pack())
    try:
        kind, payload = session.receive()
    except PeerLost:
        pass
    else:
        assert kind is Kind.ERROR
        assert json.loads(payload)["code"] == "out_of_bounds"
    session.close()
    still_serves(source, engines, socket_kind)


def test_a_lease_on_one_region_opens_no_other(socket_kind: str, engines: Make) -> None:
    source = engines(socket_kind, "source")
    lease = source.transport.reserve([0], 30)
    session = opened(source)
    size = LAYOUT.chunk_bytes(LAYOUT.parts[0])
    read = messages.Read(1, 1000, lease.id, "probe", np.asarray([0]), np.asarray([size]))
    session.send(Kind.READ, read.pack())
    kind, payload = session.receive()
    assert kind is Kind.ERROR
    assert json.loads(payload)["code"] == "out_of_bounds"
    session.close()


class Liar:
    """A source that proves the secret and then says what the test wants."""

    def __init__(self, says: Callable[[Session], None]) -> None:
        self._says = says
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            try:
                session = Session(sock, handshake.as_server(sock, SECRET))
                session.receive()
                self._says(session)
                is_hung_up(sock)
            except (OSError, InterconnectError):
                pass
            sock.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize(
    "lie",
    [
        lambda session: session.sock.sendall(HEADER.pack(b"PM", Kind.OPENED, 0xFFFFFFFF, 0)),
        lambda session: session.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3),
        lambda session: session.send(Kind.OPENED, b"[" * 100_000),
        lambda session: session.send(Kind.OPENED, b'{"regions": {"kv": {"layers": 1e999}}}'),
        lambda session: session.send(Kind.DIGEST, bytes(8)),
        lambda session: session.send(Kind.ERROR, b'{"code": "no_such_code", "message": 3}'),
        lambda session: session.sock.close(),
    ],
    ids=["4 GiB", "http", "deep json", "no layout", "wrong kind", "unknown error", "gone"],
)
def test_a_lying_source_is_a_typed_error(engines: Make, lie: Callable[[Session], None]) -> None:
    source, reader = engines("tcp", "source"), engines("tcp", "reader")
    liar = Liar(lie)
    with pytest.raises((PeerLost, LayoutMismatch)):
        reader.transport.connect(replace(source.metadata, address=liar.address), soon())
    liar.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"regions": 3}',
        "[" * 100_000,
        '{"transport": "tcp", "regions": {"kv": {}}}',
        "9" * 5000,
    ],
)
def test_metadata_that_is_none(text: str) -> None:
    with pytest.raises((PeerLost, LayoutMismatch)):
        PeerMetadata.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 0},
        {"layers": 1 << 40},
        {"blocks": -1},
        {"block_size": "x"},
        {"order": "sideways"},
        {"parts": []},
        {"layer_stride": 1 << 60},
        {"parts": [{"name": "k", "dim": 1, "dtype": "object", "offset": 0, "block_stride": 1}]},
        {"parts": [{"name": "k", "dim": 1, "dtype": "int8", "offset": -1, "block_stride": 1}]},
        {"parts": {"name": "k"}},
    ],
)
def test_layouts_too_wild_to_be_true(change: dict[str, object]) -> None:
    with pytest.raises(LayoutMismatch):
        KVLayout.from_dict(LAYOUT.to_dict() | change)


@pytest.mark.parametrize("address", ["", "nowhere", "host:", ":1", "host:port", "1.2.3.4:99999999", "x" * 300])
def test_addresses_that_are_none(socket_kind: str, engines: Make, address: str) -> None:
    source, reader = engines(socket_kind, "source"), engines(socket_kind, "reader")
    with pytest.raises(InterconnectError):
        reader.transport.connect(replace(source.metadata, address=address), soon(3))


def test_struct_of_the_header_is_what_the_documents_say() -> None:
    assert HEADER.size == struct.calcsize("!2sBxIQ") == 16
