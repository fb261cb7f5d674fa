"""Real peers in processes of their own: asleep, killed, started again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.interconnect.errors import DeadlineExceeded, InterconnectError, PeerLost, StaleEpoch
from engine.interconnect.plan import BlockPairs
from engine.interconnect.runs import runs_of
from engine.interconnect.transfer import State
from engine.interconnect.transports.shared_memory import MAX_LISTING
from engine.interconnect.wire.messages import Read
from engine.interconnect.wire.session import Kind
from tests.engine.interconnect.harness import LAYOUT, Engine, PeerProcess, opened, soon

Make = Callable[..., Engine]
ALL_LAYERS = range(LAYOUT.layers)
SLACK = 15.0


def test_blocks_come_from_another_process(socket_kind: str, engines: Make) -> None:
    reader = engines(socket_kind, "reader")
    with PeerProcess(socket_kind, seed=5) as peer:
        connection = reader.transport.connect(peer.metadata, soon())
        lease = peer.reserve(range(10))
        connection.submit(lease, BlockPairs.of(range(10), range(30, 40)), ALL_LAYERS, soon()).result()
        for number in range(10):
            assert reader.block(30 + number).hex() == peer.ask(do="block", number=number)
        connection.release(lease, soon())
        # The end of the transfer is told over another socket: what comes last frees the blocks.
        freed: list[int] = []
        deadline = soon()
        while len(freed) < 10 and time.monotonic() < deadline:
            freed = peer.ask(do="freed")
        assert freed == list(range(10))
        assert peer.ask(do="held") == 0


def test_a_sleeping_peer_is_given_up_at_the_deadline_and_serves_again_when_it_wakes(
    socket_kind: str, engines: Make
) -> None:
    reader = engines(socket_kind, "reader")
    with PeerProcess(socket_kind) as peer:
        connection = reader.transport.connect(peer.metadata, soon())
        lease = peer.reserve(range(10))
        peer.stop()
        transfer = connection.submit(lease, BlockPairs.of([1], [2]), ALL_LAYERS, soon(0.5))
        assert transfer.wait(SLACK) is State.FAILED
        assert isinstance(transfer.error, DeadlineExceeded)
        assert transfer.wait_fenced(SLACK)
        with pytest.raises(DeadlineExceeded):
            connection.renew(lease, 60, soon(0.3))
        with pytest.raises(DeadlineExceeded):
            reader.transport.connect(peer.metadata, soon(0.3))
        peer.resume()
        connection.submit(lease, BlockPairs.of([1], [2]), ALL_LAYERS, soon()).result()
        assert reader.block(2).hex() == peer.ask(do="block", number=1)
        connection.release(lease, soon())
        assert peer.ask(do="held") == 0


def test_a_killed_peer_is_lost_at_once(socket_kind: str, engines: Make) -> None:
    reader = engines(socket_kind, "reader")
    with PeerProcess(socket_kind) as peer:
        connection = reader.transport.connect(peer.metadata, soon())
        lease = peer.reserve(range(10))
        connection.submit(lease, BlockPairs.of([1], [2]), ALL_LAYERS, soon()).result()
        peer.stop()
        transfer = connection.submit(lease, BlockPairs.of(range(10), range(10)), ALL_LAYERS, soon(60))
        started = time.monotonic()
        peer.kill()
        assert transfer.wait(SLACK) is State.FAILED
        # Long before its deadline.
        assert time.monotonic() - started < SLACK
        assert isinstance(transfer.error, PeerLost)
        assert transfer.wait_fenced(SLACK)
        with pytest.raises(InterconnectError):
            connection.release(lease, soon(2))


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "sleeps"])
def test_a_reader_that_dies_or_sleeps_keeps_no_blocks(engines: Make, dies: bool) -> None:
    source = engines("shared_memory", "source")
    freed = threading.Event()
    lease = source.transport.reserve([1], 60, on_free=lambda _: freed.set())
    reader = opened(source, control=False)
    socket.recv_fds(reader.sock, MAX_LISTING, 0, socket.MSG_WAITALL)
    offsets, lengths = runs_of(source.layout, np.asarray([0]), np.asarray([1]))
    patience = 60_000 if dies else 500
    reader.send(Kind.READ, Read(1, patience, lease.id, "kv", offsets, lengths).pack())
    assert reader.receive()[0] is Kind.DIGEST
    # It may be copying now. So the end of the lease does not free the blocks ...
    source.transport.release(lease)
    if dies:
        assert source.transport.leases.quarantined_blocks() == 1
        assert not freed.is_set()
        reader.close()
    # ... but its death does, or the end of the time that it said it would wait.
    assert freed.wait(SLACK)
    assert source.transport.leases.held_blocks() == 0
    reader.close()


def test_a_restart_on_the_same_address_is_noticed(socket_kind: str, engines: Make, tmp_path: Path) -> None:
    options: dict[str, object]
    if socket_kind == "tcp":
        with socket.create_server(("127.0.0.1", 0)) as free:
            options = {"port": free.getsockname()[1]}
    else:
        options = {"path": str(tmp_path / "kv.sock")}
    reader = engines(socket_kind, "reader")
    with PeerProcess(socket_kind, seed=1, **options) as first:
        connection = reader.transport.connect(first.metadata, soon())
        lease = first.reserve(range(10))
        connection.submit(lease, BlockPairs.of([1], [2]), ALL_LAYERS, soon()).result()
        first.kill()
        with PeerProcess(socket_kind, seed=2, **options) as second:
            assert second.metadata.address == first.metadata.address
            assert second.metadata.epoch != first.metadata.epoch
            with pytest.raises(StaleEpoch) as stale:
                connection.submit(lease, BlockPairs.of([1], [2]), ALL_LAYERS, soon()).result()
            assert not stale.value.retryable
            with pytest.raises(StaleEpoch):
                reader.transport.connect(first.metadata, soon())
            fresh = reader.transport.connect(second.metadata, soon())
            with pytest.raises(StaleEpoch):
                fresh.submit(lease, BlockPairs.of([1], [2]), ALL_LAYERS, soon())
            again = second.reserve(range(10))
            fresh.submit(again, BlockPairs.of([1], [2]), ALL_LAYERS, soon()).result()
            assert reader.block(2).hex() == second.ask(do="block", number=1)
