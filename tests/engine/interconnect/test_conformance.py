"""What every transport does alike: whole and right transfers, refusals before any byte, cancellation, leases."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from engine.interconnect.errors import (
    Backpressure,
    ChecksumMismatch,
    DeadlineExceeded,
    LayoutMismatch,
    LeaseExpired,
    OutOfBounds,
    PeerLost,
    StaleEpoch,
)
from engine.interconnect.layout import KVLayout, Order
from engine.interconnect.plan import BlockPairs
from engine.interconnect.transfer import State
from tests.engine.interconnect.harness import LAYOUT, Engine, soon

Make = Callable[..., Engine]
ALL_LAYERS = range(LAYOUT.layers)


def layout(**changes: object) -> KVLayout:
    """The usual layout with something changed."""
    options: dict[str, object] = {
        "layers": 3,
        "blocks": 40,
        "block_size": 16,
        "heads": 2,
        "dims": {"k": 8, "v": 8},
        "dtype": "float16",
    }
    return KVLayout.interleaved(**(options | changes))  # type: ignore[arg-type]


def test_blocks_arrive_whole_and_in_their_places(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    before = {number: reader.block(number) for number in range(40)}
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve((3, 9, 4, 5), 30)
    pairs = BlockPairs.of((3, 9, 4, 5), (20, 21, 7, 8))
    transfer = connection.submit(lease, pairs, ALL_LAYERS, soon())
    transfer.result()
    assert transfer.poll() is State.DONE
    assert transfer.is_fenced
    for remote, local in zip(pairs.remote, pairs.local, strict=True):
        assert reader.block(local) == source.block(remote)
    for number in set(range(40)) - set(pairs.local):
        assert reader.block(number) == before[number]


@pytest.mark.parametrize("entries", [1, 31, 32, 33, 200, 5000])
def test_batches_of_any_size_are_complete_when_they_say_so(kind: str, engines: Make, entries: int) -> None:
    small = KVLayout.interleaved(
        layers=2, blocks=entries, block_size=4, heads=1, dims={"k": 5, "v": 3}, dtype="float16"
    )
    source, reader = engines(kind, "source", small), engines(kind, "reader", small)
    connection = reader.transport.connect(source.metadata, soon())
    scattered, places = list(range(entries)), list(range(entries))
    random.Random(entries).shuffle(scattered)
    random.Random(-entries).shuffle(places)
    lease = source.transport.reserve(scattered, 60)
    transfer = connection.submit(lease, BlockPairs.of(scattered, places), range(2), soon(60))
    transfer.result()
    # In the moment of completion: nothing may arrive afterwards.
    assert reader.bytes_of(places) == source.bytes_of(scattered)
    assert transfer.moved == small.block_bytes() * 2 * entries


def test_only_the_layers_asked_for_are_written(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    before = reader.block(0, [0, 2])
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([5], 30)
    connection.submit(lease, BlockPairs.of([5], [0]), [1], soon()).result()
    assert reader.block(0, [1]) == source.block(5, [1])
    assert reader.block(0, [0, 2]) == before


def test_nothing_to_move_is_done_at_once(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([], 30)
    connection.submit(lease, BlockPairs((), ()), ALL_LAYERS, soon()).result()


@pytest.mark.parametrize(("heads", "dim", "block_size", "dtype"), [(1, 1, 1, "uint8"), (3, 7, 5, "float32")])
def test_odd_sizes(kind: str, engines: Make, heads: int, dim: int, block_size: int, dtype: str) -> None:
    odd = KVLayout.separate(
        layers=1, blocks=11, block_size=block_size, heads=heads, dims={"k": dim, "v": dim + 2}, dtype=dtype
    )
    source, reader = engines(kind, "source", odd), engines(kind, "reader", odd)
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([10, 0], 30)
    connection.submit(lease, BlockPairs.of([10, 0], [0, 10]), [0], soon()).result()
    assert (reader.block(0), reader.block(10)) == (source.block(10), source.block(0))


@pytest.mark.parametrize("tokens", [1, 16, 63, 64, 65, 150, 160])
@pytest.mark.parametrize(
    ("there", "here"),
    [(16, 64), (64, 16)],
)
def test_block_sizes_and_orders_are_repacked(kind: str, engines: Make, there: int, here: int, tokens: int) -> None:
    wide = engines(kind, "source", layout(block_size=there, blocks=16))
    narrow = engines(kind, "reader", layout(block_size=here, blocks=16, order=Order.HEADS_FIRST))
    remote = random.Random(1).sample(range(16), wide.layout.blocks_for(tokens))
    local = random.Random(2).sample(range(16), narrow.layout.blocks_for(tokens))
    untouched = {number: narrow.block(number) for number in set(range(16)) - set(local)}
    connection = narrow.transport.connect(wide.metadata, soon())
    lease = wide.transport.reserve(remote, 30)
    connection.submit(lease, BlockPairs.of(remote, local, tokens), ALL_LAYERS, soon()).result()
    assert narrow.tokens(local, tokens) == wide.tokens(remote, tokens)
    assert all(narrow.block(number) == before for number, before in untouched.items())


@pytest.mark.parametrize(("there", "here"), [(16, 64), (64, 16), (16, 16)])
def test_tokens_that_the_reader_has_already_are_left_out(kind: str, engines: Make, there: int, here: int) -> None:
    tokens, start = 150, -(-40 // here) * here
    source = engines(kind, "source", layout(block_size=there, blocks=16))
    reader = engines(kind, "reader", layout(block_size=here, blocks=16))
    remote = random.Random(1).sample(range(16), source.layout.blocks_for(tokens))
    local = random.Random(2).sample(range(16), reader.layout.blocks_for(tokens - start))
    untouched = {number: reader.block(number) for number in set(range(16)) - set(local)}
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve(remote, 30)
    connection.submit(lease, BlockPairs.of(remote, local, tokens, start), ALL_LAYERS, soon()).result()
    if there == here:
        assert [reader.block(number) for number in local] == [source.block(n) for n in remote[start // there :]]
    else:
        assert reader.tokens(local, tokens - start) == source.tokens(remote, tokens, start)
    assert all(reader.block(number) == before for number, before in untouched.items())


@pytest.mark.parametrize(
    "other",
    [
        layout(layers=4),
        layout(heads=1),
        layout(dtype="bfloat16"),
        layout(dims={"k": 8}),
        layout(dims={"k": 8, "v": 4}),
        layout(dims={"k": 8, "w": 8}),
    ],
    ids=["layers", "heads", "dtype", "parts", "dim", "part names"],
)
def test_a_layout_that_cannot_fit_is_refused_before_any_byte(kind: str, engines: Make, other: KVLayout) -> None:
    source, reader = engines(kind, "source", other), engines(kind, "reader")
    metadata = source.metadata
    # Gone: any byte sent to it would be another error.
    source.close()
    with pytest.raises(LayoutMismatch) as refused:
        reader.transport.connect(metadata, soon())
    assert not refused.value.retryable


def test_a_peer_of_another_incarnation_is_refused(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    lease = source.transport.reserve([1], 30)
    connection = reader.transport.connect(source.metadata, soon())
    later = type(lease)(lease.id, lease.engine_id, lease.epoch + 1, lease.region, lease.blocks, lease.seconds)
    with pytest.raises(StaleEpoch):
        connection.submit(later, BlockPairs.of([1], [1]), ALL_LAYERS, soon())


def test_a_peer_that_is_gone_is_lost(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    metadata = source.metadata
    connection = reader.transport.connect(metadata, soon())
    lease = source.transport.reserve([1], 30)
    source.close()
    with pytest.raises(PeerLost) as lost:
        connection.submit(lease, BlockPairs.of([1], [1]), ALL_LAYERS, soon()).result()
    assert lost.value.retryable
    with pytest.raises(PeerLost):
        reader.transport.connect(metadata, soon())


@pytest.mark.parametrize(
    ("remote", "local", "layers"),
    [([40], [0], [0]), ([-1], [0], [0]), ([1], [40], [0]), ([1], [0], [3]), ([1, 2], [0, 0], [0]), ([1, 2], [0], [0])],
    ids=["remote", "negative", "local", "layer", "twice", "too few"],
)
def test_blocks_that_do_not_exist_are_out_of_bounds(
    kind: str, engines: Make, remote: list[int], local: list[int], layers: list[int]
) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([1, 2], 30)
    with pytest.raises(OutOfBounds):
        connection.submit(lease, BlockPairs.of(remote, local), layers, soon())


def test_the_source_refuses_blocks_that_the_lease_does_not_cover(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([1, 2], 30)
    # A reader that lies about what it was granted.
    forged = type(lease)(lease.id, lease.engine_id, lease.epoch, lease.region, (1, 2, 3), lease.seconds)
    before = reader.block(0)
    with pytest.raises(OutOfBounds):
        connection.submit(forged, BlockPairs.of([3], [0]), ALL_LAYERS, soon()).result()
    if kind in ("in_process", "tcp"):
        assert reader.block(0) == before


def test_a_lease_that_has_ended_gives_nothing(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([1], 30)
    source.transport.release(lease)
    with pytest.raises(LeaseExpired):
        connection.submit(lease, BlockPairs.of([1], [1]), ALL_LAYERS, soon()).result()
    with pytest.raises(LeaseExpired):
        connection.renew(lease, 10, soon())
    assert source.transport.leases.held_blocks() == 0


def test_the_reader_renews_and_releases(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    freed: list[tuple[int, ...]] = []
    lease = source.transport.reserve([1, 2], 30, on_free=freed.append)
    connection.renew(lease, 60, soon())
    connection.release(lease, soon())
    connection.release(lease, soon())
    assert freed == [(1, 2)]
    assert source.transport.leases.held_blocks() == 0


def test_a_block_that_changes_under_its_lease_is_noticed(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([1, 2], 30)
    source.transport.leases.seal(lease.id)
    source.region.items(LAYOUT.parts[1], 2)[2, 0, 0, 0] ^= 1
    transfer = connection.submit(lease, BlockPairs.of([1, 2], [5, 6]), ALL_LAYERS, soon())
    assert transfer.wait() is State.FAILED
    assert isinstance(transfer.error, ChecksumMismatch)
    assert transfer.error.retryable


def test_cancelled_blocks_can_be_used_again_once_fenced(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve(range(40), 30)
    for round_ in range(20):
        first = connection.submit(lease, BlockPairs.of(range(20), range(20)), ALL_LAYERS, soon())
        first.cancel()
        assert first.wait_fenced(10)
        assert first.wait() in (State.CANCELLED, State.DONE)
        second = connection.submit(lease, BlockPairs.of(range(20, 40), range(20)), ALL_LAYERS, soon())
        second.result()
        assert all(reader.block(n) == source.block(n + 20) for n in range(20)), round_
    assert reader.transport.claims.of(reader.region) == frozenset()


def test_blocks_that_are_still_written_are_refused_and_free_in_the_moment_of_the_end(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve(range(8), 30)
    give_back = reader.transport.claims.claim(reader.region, [1])
    with pytest.raises(Backpressure) as refused:
        connection.submit(lease, BlockPairs.of([1], [1]), ALL_LAYERS, soon())
    assert refused.value.retryable
    give_back()
    for _ in range(100):
        connection.submit(lease, BlockPairs.of([1], [1]), ALL_LAYERS, soon()).result()


def test_too_many_transfers_are_refused(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader", most_waiting=0)
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([1], 30)
    with pytest.raises(Backpressure) as refused:
        connection.submit(lease, BlockPairs.of([1], [1]), ALL_LAYERS, soon())
    assert refused.value.retryable


def test_a_deadline_that_has_passed_moves_nothing(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve([1], 30)
    transfer = connection.submit(lease, BlockPairs.of([1], [1]), ALL_LAYERS, soon(-1))
    assert transfer.wait() is State.FAILED
    assert isinstance(transfer.error, DeadlineExceeded)
    assert transfer.wait_fenced(10)


def test_many_at_once_from_many_threads(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve(range(40), 60)
    wrong: list[int] = []

    def pull(number: int) -> None:
        for _ in range(15):
            connection.submit(lease, BlockPairs.of([number], [39 - number]), ALL_LAYERS, soon()).result()
            if reader.block(39 - number) != source.block(number):
                wrong.append(number)

    threads = [threading.Thread(target=pull, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closing_ends_what_is_under_way(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    lease = source.transport.reserve(range(40), 60)
    transfers = [connection.submit(lease, BlockPairs.of([n], [n]), ALL_LAYERS, soon()) for n in range(40)]
    connection.close()
    assert all(transfer.wait(10).is_final and transfer.wait_fenced(10) for transfer in transfers)
    with pytest.raises(PeerLost):
        connection.submit(lease, BlockPairs.of([1], [1]), ALL_LAYERS, soon())


def test_the_way_to_a_peer_can_be_measured(kind: str, engines: Make) -> None:
    source, reader = engines(kind, "source"), engines(kind, "reader")
    connection = reader.transport.connect(source.metadata, soon())
    assert connection.probe(1 << 20, soon()) > 0
