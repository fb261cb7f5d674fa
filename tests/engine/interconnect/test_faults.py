"""Somebody stands between two engines and loses, doubles, delays, damages or cuts.

Whatever he does: an end in bounded time, no block lost, no wrong byte in what is called DONE.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from engine.interconnect.errors import (
    Backpressure,
    ChecksumMismatch,
    DeadlineExceeded,
    InterconnectError,
    LeaseExpired,
    PeerLost,
)
from engine.interconnect.leases import Lease
from engine.interconnect.plan import BlockPairs
from engine.interconnect.pull import GRACE_SECONDS
from engine.interconnect.transfer import State, Transfer
from engine.interconnect.transport import Connection
from engine.interconnect.wire.session import Kind
from tests.engine.interconnect.harness import LAYOUT, Engine, soon
from tests.engine.interconnect.proxy import DOWN, UP, Proxy, Unit, forward

ALL_LAYERS = range(LAYOUT.layers)
BLOCKS = tuple(range(10, 30))
# A machine under load needs some slack; without bounds these tests would hang instead.
SLACK = 10.0


class Scene:
    """A source, a reader, and the proxy between them."""

    def __init__(self, kind: str, engines: Callable[..., Engine]) -> None:
        self.kind = kind
        self.source = engines(kind, "source")
        self.reader = engines(kind, "reader")
        self.proxy = Proxy(self.source.metadata.address)
        self.peer = replace(self.source.metadata, address=self.proxy.address)
        self.freed: list[int] = []

    def connect(self) -> Connection:
        return self.reader.transport.connect(self.peer, soon())

    def reserve(self, seconds: float = 60) -> Lease:
        return self.source.transport.reserve(BLOCKS, seconds, on_free=self.freed.extend)

    def pull(self, connection: Connection, lease: Lease, seconds: float = 20) -> Transfer:
        return connection.submit(lease, BlockPairs.of(BLOCKS, BLOCKS), ALL_LAYERS, soon(seconds))

    def finish(self, transfer: Transfer, seconds: float = 20) -> InterconnectError | None:
        """Wait for an end in bounded time; DONE only with the right bytes."""
        started = time.monotonic()
        transfer.wait(seconds + GRACE_SECONDS + SLACK)
        assert transfer.poll().is_final
        assert time.monotonic() - started < seconds + GRACE_SECONDS + SLACK
        assert transfer.wait_fenced(SLACK)
        if transfer.poll() is State.DONE:
            self.check()
        return transfer.error

    def check(self) -> None:
        assert self.reader.bytes_of(BLOCKS) == self.source.bytes_of(BLOCKS)

    def recovers(self, connection: Connection, lease: Lease) -> None:
        """Without faults, the same connection and lease work, and no block is lost."""
        self.proxy.rule, self.proxy.cut_after = forward, None
        assert self.finish(self.pull(connection, lease)) is None
        self.check()
        connection.release(lease, soon())
        self.all_free()

    def all_free(self) -> None:
        """Source and reader hold nothing, and the owner was told once."""
        deadline = soon(SLACK)
        while self.source.transport.leases.held_blocks() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.source.transport.leases.held_blocks() == 0
        assert sorted(self.freed) == sorted(BLOCKS)
        assert self.reader.transport.claims.of(self.reader.region) == frozenset()


@pytest.fixture
def scene(socket_kind: str, engines: Callable[..., Engine]) -> Iterator[Scene]:
    made = Scene(socket_kind, engines)
    yield made
    made.proxy.close()


def only(
    direction: str, kind: Kind | None, what: Callable[[Unit], Iterable[bytes]]
) -> Callable[[Unit], Iterable[bytes]]:
    """A rule for the first unit of one kind."""
    done = threading.Event()

    def rule(unit: Unit) -> Iterable[bytes]:
        if (unit.direction, unit.kind) != (direction, kind) or done.is_set():
            return forward(unit)
        done.set()
        return what(unit)

    return rule


def flip(unit: Unit, at: int) -> bytes:
    data = bytearray(unit.data)
    data[at % len(data)] ^= 0x10
    return bytes(data)


def test_without_faults_the_proxy_is_not_noticed(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve()
    scene.recovers(connection, lease)
    assert scene.proxy.connections >= 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_a_reset_at_any_byte_of_the_answer(scene: Scene, share: float) -> None:
    connection, lease = scene.connect(), scene.reserve()
    before = scene.proxy.passed[DOWN]
    scene.finish(scene.pull(connection, lease))
    whole = scene.proxy.passed[DOWN] - before
    # A fresh lane, so that the cut may also fall into its greeting.
    again = scene.connect()
    scene.proxy.cut_after = scene.proxy.passed[DOWN] + int(whole * share)
    error = scene.finish(scene.pull(again, lease))
    if error is not None:
        assert isinstance(error, PeerLost)
        assert error.retryable
    scene.recovers(connection, lease)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 40, 71, 72, 73, 88, 400])
def test_a_reset_in_the_greeting_fails_the_connection(scene: Scene, size: int) -> None:
    scene.proxy.cut_after = size
    with pytest.raises(PeerLost):
        scene.connect()
    scene.proxy.cut_after = None
    scene.recovers(scene.connect(), scene.reserve())


@pytest.mark.parametrize(
    ("direction", "kind"),
    [(DOWN, Kind.DIGEST), (UP, Kind.READ), (UP, Kind.OPEN), (DOWN, Kind.OPENED), (DOWN, None)],
    ids=["digest", "read", "open", "opened", "bytes"],
)
def test_a_lost_message_ends_with_the_deadline(scene: Scene, direction: str, kind: Kind | None) -> None:
    connection, lease = scene.connect(), scene.reserve()
    scene.proxy.rule = only(direction, kind, lambda unit: ())
    error = scene.finish(scene.pull(connection, lease, seconds=0.7), seconds=0.7)
    # Where something else follows the lost message, it is noticed even earlier.
    assert isinstance(error, DeadlineExceeded | PeerLost)
    assert error.retryable
    scene.recovers(connection, lease)


def test_a_lost_farewell_costs_nothing(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve()
    scene.proxy.rule = only(UP, Kind.FINISH, lambda unit: ())
    assert scene.finish(scene.pull(connection, lease)) is None
    connection.release(lease, soon())
    connection.close()
    scene.all_free()


def test_a_lost_acknowledgement_of_a_release_still_frees(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve()
    scene.proxy.rule = only(DOWN, Kind.OK, lambda unit: ())
    with pytest.raises(DeadlineExceeded):
        connection.release(lease, soon(0.5))
    scene.all_free()
    connection.release(lease, soon())


def test_a_lost_release_ends_with_the_lease(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve(seconds=1.0)
    scene.proxy.rule = only(UP, Kind.RELEASE, lambda unit: ())
    with pytest.raises(DeadlineExceeded):
        connection.release(lease, soon(0.3))
    scene.all_free()


@pytest.mark.parametrize(
    ("direction", "kind"),
    [(DOWN, Kind.DIGEST), (UP, Kind.READ), (DOWN, Kind.DATA), (UP, Kind.FINISH), (DOWN, None)],
    ids=["digest", "read", "data", "finish", "bytes"],
)
def test_a_doubled_message_never_makes_a_wrong_byte(scene: Scene, direction: str, kind: Kind | None) -> None:
    connection, lease = scene.connect(), scene.reserve()
    scene.proxy.rule = only(direction, kind, lambda unit: (unit.data, unit.data))
    error = scene.finish(scene.pull(connection, lease))
    assert error is None or error.retryable
    # And not in the next transfer either, which may find what was left over.
    scene.reader.bytes[:] = 0
    assert scene.finish(scene.pull(connection, lease)) is None
    scene.recovers(connection, lease)


def test_a_doubled_acknowledgement_of_a_release_does_no_harm(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve()
    scene.proxy.rule = only(DOWN, Kind.OK, lambda unit: (unit.data, unit.data))
    connection.release(lease, soon())
    connection.release(lease, soon())
    scene.all_free()


@pytest.mark.parametrize("kind", [Kind.DIGEST, None], ids=["digest", "bytes"])
def test_what_comes_late_is_never_written(scene: Scene, kind: Kind | None) -> None:
    if scene.kind == "shared_memory" and kind is None:
        pytest.skip("no bytes go through the socket")
    connection, lease = scene.connect(), scene.reserve()
    held, let_go = threading.Event(), threading.Event()

    def hold(unit: Unit) -> Iterator[bytes]:
        held.set()
        assert let_go.wait(30)
        yield unit.data

    scene.proxy.rule = only(DOWN, kind, hold) if kind else _after_greeting(hold)
    late = scene.pull(connection, lease, seconds=1.0)
    assert held.wait(SLACK)
    assert isinstance(scene.finish(late, 1.0), DeadlineExceeded)
    # The blocks are fenced, so they may serve another request now.
    scene.reader.bytes[:] = 7
    let_go.set()
    deadline = soon(0.3)
    while time.monotonic() < deadline:
        assert (scene.reader.bytes == 7).all()
    scene.recovers(connection, lease)


@pytest.mark.parametrize("at", [0, 3, 9, 20, -1])
@pytest.mark.parametrize(
    ("direction", "kind"),
    [(DOWN, Kind.DIGEST), (UP, Kind.READ), (DOWN, Kind.OPENED), (DOWN, Kind.DATA), (DOWN, None)],
    ids=["digest", "read", "opened", "data", "bytes"],
)
def test_a_flipped_bit_is_noticed(scene: Scene, direction: str, kind: Kind | None, at: int) -> None:
    if scene.kind == "shared_memory" and kind in (Kind.DATA, None):
        pytest.skip("no bytes go through the socket")
    connection, lease = scene.connect(), scene.reserve()

    def damage(unit: Unit) -> Iterable[bytes]:
        return (flip(unit, at),)

    scene.proxy.rule = only(direction, kind, damage) if kind else _after_greeting(damage)
    error = scene.finish(scene.pull(connection, lease, seconds=1.5), seconds=1.5)
    # A length that grew makes the receiver wait for bytes that never come.
    assert isinstance(error, ChecksumMismatch | PeerLost | DeadlineExceeded)
    assert error.retryable
    scene.recovers(connection, lease)


def test_a_lease_that_expires_on_the_way_is_refused(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve(seconds=0.5)

    def wait_for_the_end(unit: Unit) -> Iterator[bytes]:
        deadline = soon(SLACK)
        while not scene.freed and time.monotonic() < deadline:
            time.sleep(0.01)
        yield unit.data

    scene.proxy.rule = only(UP, Kind.READ, wait_for_the_end)
    error = scene.finish(scene.pull(connection, lease))
    assert isinstance(error, LeaseExpired)
    assert not error.retryable
    scene.all_free()


def test_cancel_while_the_source_is_silent_then_reuse(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve()
    held, let_go = threading.Event(), threading.Event()

    def hold(unit: Unit) -> Iterator[bytes]:
        held.set()
        assert let_go.wait(30)
        yield unit.data

    scene.proxy.rule = only(DOWN, Kind.DIGEST, hold)
    transfer = scene.pull(connection, lease)
    assert held.wait(SLACK)
    with pytest.raises(Backpressure):
        scene.pull(connection, lease)
    transfer.cancel()
    assert transfer.wait(SLACK) is State.CANCELLED
    assert transfer.wait_fenced(SLACK)
    scene.reader.bytes[:] = 0
    let_go.set()
    scene.recovers(connection, lease)


def test_a_lane_that_broke_while_idle_is_replaced(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve()
    assert scene.finish(scene.pull(connection, lease)) is None
    scene.proxy.cut_all()
    deadline = soon(SLACK)
    error = scene.finish(scene.pull(connection, lease))
    # The reset may not have reached this end yet; once it has, the lane is replaced without a word.
    while error is not None and time.monotonic() < deadline:
        assert isinstance(error, PeerLost)
        error = scene.finish(scene.pull(connection, lease))
    assert error is None
    scene.recovers(connection, lease)


def test_random_cuts_never_lose_a_block(scene: Scene) -> None:
    connection, lease = scene.connect(), scene.reserve()
    for step in range(40):
        scene.proxy.cut_after = scene.proxy.passed[DOWN] + step * 397
        error = scene.finish(scene.pull(connection, lease))
        assert error is None or isinstance(error, PeerLost)
    scene.recovers(connection, lease)


def _after_greeting(what: Callable[[Unit], Iterable[bytes]]) -> Callable[[Unit], Iterable[bytes]]:
    """A rule for the first bulk bytes: those that come down after a DATA frame."""
    seen, done = threading.Event(), threading.Event()

    def rule(unit: Unit) -> Iterable[bytes]:
        if unit.direction == DOWN and unit.kind is Kind.DATA:
            seen.set()
        if unit.direction != DOWN or unit.kind is not None or not seen.is_set() or done.is_set():
            return forward(unit)
        done.set()
        return what(unit)

    return rule
