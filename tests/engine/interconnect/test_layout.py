"""Layouts say where every number lies; repacking keeps every number, whatever the two layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.interconnect.errors import LayoutMismatch, OutOfBounds
from engine.interconnect.layout import KVLayout, Order, Part, require_fit
from engine.interconnect.plan import BATCH_BYTES, BATCH_RUNS, BlockPairs, batches
from engine.interconnect.regions import Region
from engine.interconnect.runs import runs_of

orders = st.sampled_from(list(Order))
arrangements = st.sampled_from([KVLayout.interleaved, KVLayout.separate])


def region(layout: KVLayout, seed: int = 0) -> Region:
    data = bytearray(np.random.default_rng(seed).bytes(layout.span))
    return Region("kv", data, layout)


def pull(source: Region, target: Region, pairs: BlockPairs) -> None:
    """What a transport does, without one."""
    for batch in batches(source.layout, target, pairs, range(source.layout.layers)):
        starts = iter(batch.remote.tolist())
        base = 0
        for within, there, size in batch.fragments:
            if within == 0:
                base = next(starts)
            batch.target[there : there + size] = source.bytes[base + within : base + within + size]
        if batch.finish:
            batch.finish()


def canonical(cache: Region, blocks: tuple[int, ...], tokens: int) -> list[np.ndarray]:
    """(token, head, dim) of each layer and part, gathered number by number."""
    layout = cache.layout
    found = []
    for layer in range(layout.layers):
        for part in sorted(layout.parts, key=lambda part: part.name):
            items = cache.items(part, layer)
            rows = []
            for token in range(tokens):
                chunk = items[blocks[token // layout.block_size]]
                row = token % layout.block_size
                rows.append(chunk[row] if layout.order is Order.TOKENS_FIRST else chunk[:, row])
            found.append(np.array(rows))
    return found


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    ways=st.tuples(arrangements, arrangements),
    order=st.tuples(orders, orders),
    heads=st.integers(1, 3),
    dims=st.fixed_dictionaries({"k": st.integers(1, 4), "v": st.integers(1, 4)}),
    dtype=st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_a_sequence_survives_any_repacking(data, sizes, ways, order, heads, dims, dtype) -> None:  # type: ignore[no-untyped-def]
    tokens = data.draw(st.integers(1, 40))
    # Of the reader's own blocks, some are filled already, and shared.
    filled = data.draw(st.integers(0, tokens // sizes[1]))
    start = filled * sizes[1]
    layouts = [
        way(layers=2, blocks=45, block_size=size, heads=heads, dims=dims, dtype=dtype, order=one)
        for way, size, one in zip(ways, sizes, order, strict=True)
    ]
    source, target = region(layouts[0], 1), region(layouts[1], 2)
    picks = [tuple(data.draw(st.permutations(range(45)))[: layout.blocks_for(tokens)]) for layout in layouts]
    own = picks[1][filled:]
    untouched = {block for block in range(45)} - set(own)
    before = canonical(target, tuple(untouched), len(untouched) * sizes[1])
    pull(source, target, BlockPairs(picks[0], own, tokens, start))
    for there, here in zip(canonical(source, picks[0], tokens), canonical(target, own, tokens - start), strict=True):
        assert there[start:].tolist() == here.tolist()
    after = canonical(target, tuple(untouched), len(untouched) * sizes[1])
    assert all(np.array_equal(one, two) for one, two in zip(before, after, strict=True))


def test_tokens_beyond_the_sequence_stay_as_they_are_when_repacked() -> None:
    wide = KVLayout.separate(layers=1, blocks=4, block_size=64, heads=1, dims={"k": 2}, dtype="int8")
    narrow = KVLayout.separate(layers=1, blocks=4, block_size=16, heads=1, dims={"k": 2}, dtype="int8")
    source, target = region(narrow, 1), region(wide, 2)
    before = target.items(wide.parts[0], 0)[0, 20:].copy()
    pull(source, target, BlockPairs((0, 1), (0,), 20))
    assert np.array_equal(target.items(wide.parts[0], 0)[0, 20:], before)


@pytest.mark.parametrize("blocks", [1, 31, 33, 200, 5000])
def test_batches_are_bounded(blocks: int) -> None:
    layout = KVLayout.interleaved(layers=2, blocks=blocks, block_size=16, heads=1, dims={"k": 32}, dtype="int8")
    target = region(layout)
    scattered = tuple(np.random.default_rng(0).permutation(blocks).tolist())
    for pairs in (BlockPairs(scattered, scattered), BlockPairs(scattered, tuple(range(blocks)))):
        found = list(batches(layout, target, pairs, range(2)))
        assert sum(batch.nbytes for batch in found) == layout.span
        assert all(batch.nbytes <= BATCH_BYTES + (1 << 19) and len(batch.remote) <= BATCH_RUNS for batch in found)


def test_the_parts_of_a_batch_are_the_batch() -> None:
    layout = KVLayout.interleaved(layers=3, blocks=70, block_size=64, heads=2, dims={"k": 16}, dtype="float16")
    order = np.random.default_rng(4).permutation(70).tolist()
    for local in (order, list(range(70))):
        for batch in batches(layout, region(layout), BlockPairs.of(range(70), local), range(3)):
            for nbytes in (1, 5000, 50_000, 1 << 30):
                parts = batch.parts(nbytes)
                assert [one for part in parts for one in part.fragments] == batch.fragments
                assert np.concatenate([part.remote for part in parts]).tolist() == batch.remote.tolist()
                assert all(part.nbytes == sum(size for _, _, size in part.fragments) for part in parts)


def test_reader_and_source_cut_the_same_runs() -> None:
    # Only then are the checksums that the source took beforehand those that the reader asks for.
    layout = KVLayout.interleaved(
        layers=3, blocks=300, block_size=64, heads=2, dims={"k": 16, "v": 16}, dtype="float16"
    )
    leased = np.r_[5:90, 100:101, 150:300]
    expected = set(zip(*(column.tolist() for column in runs_of(layout, np.arange(3), leased)), strict=True))
    pairs = BlockPairs.of(leased.tolist(), np.random.default_rng(1).permutation(300)[: len(leased)].tolist())
    asked = set()
    for batch in batches(layout, region(layout), pairs, range(3)):
        asked |= set(zip(batch.remote.tolist(), batch.lengths.tolist(), strict=True))
    assert asked == expected


def test_chunks_that_overlap_are_refused() -> None:
    good = KVLayout.separate(layers=2, blocks=4, block_size=4, heads=1, dims={"k": 4, "v": 4}, dtype="int8")
    part = Part("k", 4, "int8", 0, 8)
    bad = KVLayout(2, 4, 4, 1, Order.TOKENS_FIRST, (part,), good.layer_stride)
    with pytest.raises(ValueError, match="overlap"):
        Region("kv", bytearray(bad.span), bad)


def test_a_buffer_that_is_too_small_is_refused() -> None:
    layout = KVLayout.separate(layers=2, blocks=4, block_size=4, heads=1, dims={"k": 4}, dtype="int8")
    with pytest.raises(ValueError, match="spans"):
        Region("kv", bytearray(layout.span - 1), layout)
    with pytest.raises(ValueError, match="writable"):
        Region("kv", bytes(layout.span), layout)


def test_what_may_differ_and_what_may_not() -> None:
    base = {"layers": 2, "blocks": 4, "block_size": 16, "heads": 2, "dims": {"k": 4, "v": 4}, "dtype": "int8"}
    this = KVLayout.interleaved(**base)  # type: ignore[arg-type]
    for change in ({"blocks": 9}, {"block_size": 64}, {"order": Order.HEADS_FIRST}):
        require_fit(KVLayout.separate(**(base | change)), this)  # type: ignore[arg-type]
    for change in ({"layers": 3}, {"heads": 4}, {"dtype": "uint8"}, {"dims": {"k": 4}}):
        with pytest.raises(LayoutMismatch):
            require_fit(KVLayout.interleaved(**(base | change)), this)  # type: ignore[arg-type]


def test_a_layout_survives_json() -> None:
    layout = KVLayout.interleaved(layers=2, blocks=4, block_size=16, heads=2, dims={"k": 4}, dtype="bfloat16")
    assert KVLayout.from_dict(layout.to_dict()) == layout


def test_runs_must_be_whole_readable_chunks() -> None:
    layout = KVLayout.interleaved(layers=1, blocks=4, block_size=4, heads=1, dims={"k": 4, "v": 4}, dtype="int8")
    cache = region(layout)
    readable = np.array([True, True, False, True])

    def check(*runs: tuple[int, int]) -> None:
        offsets, lengths = (np.asarray(column, np.int64) for column in zip(*runs, strict=True))
        cache.check_runs(offsets, lengths, readable)

    check((0, 16), (16, 48), (96, 32))
    for bad in [(0, 15), (1, 16), (64, 16), (32, 64), (128, 16), (0, 0), (0, -16), (-16, 16), (112, 32)]:
        with pytest.raises(OutOfBounds):
            check((0, 16), bad)


def test_a_run_may_not_reach_over_a_gap() -> None:
    part = Part("k", 4, "int8", 0, 32)
    layout = KVLayout(1, 3, 4, 1, Order.TOKENS_FIRST, (part,), 0)
    cache = region(layout)
    with pytest.raises(OutOfBounds):
        cache.check_runs(np.asarray([0]), np.asarray([48]), np.ones(3, bool))
