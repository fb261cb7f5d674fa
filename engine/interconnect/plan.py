"""What a transfer has to move: pairs of blocks into batches of byte runs, and the repacking where layouts differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.interconnect.errors import OutOfBounds
from engine.interconnect.layout import KVLayout, Offsets, common_tokens
from engine.interconnect.regions import Bytes, Region
from engine.interconnect.repack import place
from engine.interconnect.runs import FIRST_LAYER, chunks_of, run_starts

BATCH_BYTES = 64 << 20
BATCH_RUNS = 2048
REPACK_BYTES = 8 << 20

Fragment = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BlockPairs:
    """Which local blocks take what which remote blocks hold.

    With equal block sizes, `local[i]` takes `remote[i]`. With different ones, both list the blocks of one sequence
    in order: token t is in `remote[t // remote_block_size]` and goes to `local[(t - start) // local_block_size]`.

    Attributes:
        remote, local: block numbers. No local block may appear twice.
        tokens: length of the sequence; by default, all that the remote blocks hold, or as much of it as the
            local ones take if those are fewer. Blocks of equal size and order are always moved whole.
        start: token at which the local blocks begin; those before it are not moved. Where blocks of equal size and
            order are moved, one that begins a block.
    """

    remote: tuple[int, ...]
    local: tuple[int, ...]
    tokens: int | None = None
    start: int = 0

    @classmethod
    def of(cls, remote: Sequence[int], local: Sequence[int], tokens: int | None = None, start: int = 0) -> BlockPairs:
        return cls(tuple(remote), tuple(local), tokens, start)


@dataclass(slots=True)
class Batch:
    """Runs of bytes that are asked for, and verified, together.

    Attributes:
        remote, lengths: offset of each run in the peer's region, and its bytes.
        target: what it is written into.
        fragments: where a run's bytes go: (offset from its start, offset in the target, bytes), run by run.
        finish: called once the bytes are verified.
    """

    remote: Offsets
    lengths: Offsets
    target: Bytes
    fragments: list[Fragment]
    finish: Callable[[], None] | None = None

    @property
    def nbytes(self) -> int:
        return int(self.lengths.sum())

    def parts(self, nbytes: int) -> list[Batch]:
        """Batches of whole runs and about so many bytes; `finish` is left to whoever holds this one."""
        ends = np.cumsum(self.lengths)
        cuts = np.unique(np.searchsorted(ends, np.arange(nbytes, int(ends[-1]), nbytes), side="left") + 1)
        bounds = [0, *cuts[cuts < len(ends)].tolist(), len(ends)]
        beginnings = [at for at, fragment in enumerate(self.fragments) if fragment[0] == 0]
        beginnings.append(len(self.fragments))
        return [
            Batch(
                self.remote[start:stop],
                self.lengths[start:stop],
                self.target,
                self.fragments[beginnings[start] : beginnings[stop]],
            )
            for start, stop in itertools.pairwise(bounds)
        ]

    def views(self) -> Iterator[memoryview]:
        """The places that take the bytes, in the order in which they come; neighbours are one place."""
        memory = self.target.data
        first = after = -1
        for _, start, size in self.fragments:
            if start != after:
                if after > first:
                    yield memory[first:after]
                first = start
            after = start + size
        if after > first:
            yield memory[first:after]


def batches(
    remote: KVLayout, local: Region, pairs: BlockPairs, layers: Sequence[int], first: int = BATCH_BYTES
) -> Iterator[Batch]:
    """Everything to move, checked at once, cut lazily.

    Args:
        first: bytes of the first batch, about.

    Raises:
        OutOfBounds: a block or a layer that does not exist, a local block twice, or too few blocks for the tokens.
    """
    there, here = np.asarray(pairs.remote, np.int64), np.asarray(pairs.local, np.int64)
    chosen = np.asarray(sorted(set(layers)), np.int64)
    remote.check(chosen, there)
    local.layout.check(chosen, here)
    if len(set(pairs.local)) < len(pairs.local):
        raise OutOfBounds("a local block appears twice")
    tokens = _tokens(remote, local.layout, pairs)
    # Blocks before the first token are left out; what is before it in its own block is read, and not written.
    skipped, before = divmod(pairs.start, remote.block_size)
    there, tokens = there[skipped:], tokens - skipped * remote.block_size
    if remote.same_chunks(local.layout):
        if before:
            raise OutOfBounds(f"token {pairs.start} is in the middle of a block that is moved whole")
        count = remote.blocks_for(tokens)
        return _direct(remote, local, there[:count], here[:count], chosen, first)
    return _repacked(remote, local, there, here, (before, tokens), chosen)


def _tokens(remote: KVLayout, local: KVLayout, pairs: BlockPairs) -> int:
    there, here = len(pairs.remote) * remote.block_size, pairs.start + len(pairs.local) * local.block_size
    if remote.block_size == local.block_size and there != here:
        raise OutOfBounds(f"{len(pairs.remote)} remote blocks for {len(pairs.local)} local ones")
    tokens = min(there, here) if pairs.tokens is None else pairs.tokens
    if not 0 <= pairs.start <= tokens <= min(there, here):
        raise OutOfBounds(f"tokens {pairs.start} to {tokens} do not fit into {there} there and {here} here")
    return tokens


def _direct(
    remote: KVLayout, local: Region, there: Offsets, here: Offsets, layers: Offsets, first: int
) -> Iterator[Batch]:
    """Chunks straight into place."""
    if not len(there) or not len(layers):
        return
    sources, lengths = chunks_of(remote, there)
    layout = local.layout
    targets = np.concatenate(
        [layout.offsets(layout.part(part.name), FIRST_LAYER, here).ravel() for part in remote.parts]
    )
    cut = _cut(sources, targets, lengths)
    pieces = cut.pieces(BATCH_BYTES)
    together = max(1, min(BATCH_BYTES // cut.nbytes, BATCH_RUNS // len(cut.offsets)))
    bounds = [0, *range(max(1, min(first // cut.nbytes, together)), len(layers), together), len(layers)]
    for at, end in itertools.pairwise(bounds):
        some = layers[at:end]
        for piece in pieces:
            yield _batch(piece, some, remote.layer_stride, layout.layer_stride, local.bytes)


def _repacked(
    remote: KVLayout, local: Region, there: Offsets, here: Offsets, span: tuple[int, int], layers: Offsets
) -> Iterator[Batch]:
    """Chunks of one layer into a staging buffer, and from there, verified, to where their tokens belong.

    Args:
        span: first token and the one after the last, counted from the beginning of the first remote block.
    """
    step = _step(remote, local.layout)
    before, tokens = span
    if before == tokens:
        return
    for layer in layers:
        for start in range(0, tokens, step):
            stop = min(start + step, tokens)
            blocks = there[start // remote.block_size : remote.blocks_for(stop)]
            sources, lengths = chunks_of(remote, blocks)
            staging = np.empty(int(lengths.sum()), np.uint8)
            cut = _cut(sources, np.cumsum(lengths) - lengths, lengths)
            one = np.asarray([layer])
            made = [_batch(piece, one, remote.layer_stride, 0, staging) for piece in cut.pieces(BATCH_BYTES)]
            written = max(start, before) - before, stop - before
            made[-1].finish = place(remote, local, int(layer), here, written, staging, max(0, before - start))
            yield from made


def _step(remote: KVLayout, local: KVLayout) -> int:
    """Tokens to repack at a time: about `REPACK_BYTES`, in whole blocks of both sides if that is not too many."""
    tokens = max(1, REPACK_BYTES // remote.block_bytes()) * remote.block_size
    common = common_tokens(remote, local)
    return tokens // common * common or tokens


@dataclass(frozen=True, slots=True)
class _Cut:
    """What one layer is cut into, as offsets from its start on either side.

    Attributes:
        offsets, lengths: of the runs.
        run_of, within, targets, sizes: of the fragments: number of their run, offset from its start, offset in the
            target, bytes.
    """

    offsets: Offsets
    lengths: Offsets
    run_of: Offsets
    within: Offsets
    targets: Offsets
    sizes: Offsets

    @property
    def nbytes(self) -> int:
        return int(self.lengths.sum())

    def pieces(self, most: int) -> list[_Cut]:
        """Itself, in pieces of bounded bytes and runs."""
        ends = np.cumsum(self.lengths)
        found = []
        start = 0
        while start < len(ends):
            done = int(ends[start]) - int(self.lengths[start])
            stop = int(np.searchsorted(ends, done + most, side="right"))
            stop = min(max(stop, start + 1), start + BATCH_RUNS)
            runs = slice(start, stop)
            low, high = np.searchsorted(self.run_of, (start, stop))
            some = slice(int(low), int(high))
            found.append(
                _Cut(
                    self.offsets[runs],
                    self.lengths[runs],
                    self.run_of[some] - start,
                    self.within[some],
                    self.targets[some],
                    self.sizes[some],
                )
            )
            start = stop
        return found


def _cut(sources: Offsets, targets: Offsets, lengths: Offsets) -> _Cut:
    """Chunks of one layer into runs, and those into fragments, by ascending source."""
    if (sources[1:] < sources[:-1]).any():
        order = np.argsort(sources, kind="stable")
        sources, targets, lengths = sources[order], targets[order], lengths[order]
    first = run_starts(sources, lengths)
    run_of = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(sources))))
    # A fragment is what continues on both sides.
    broken = (targets[:-1] + lengths[:-1] != targets[1:]) | (run_of[:-1] != run_of[1:])
    begin = np.concatenate(([0], np.flatnonzero(broken) + 1))
    offsets = sources[first]
    return _Cut(
        offsets,
        np.add.reduceat(lengths, first),
        run_of[begin],
        sources[begin] - offsets[run_of[begin]],
        targets[begin],
        np.add.reduceat(lengths, begin),
    )


def _batch(cut: _Cut, layers: Offsets, source_stride: int, target_stride: int, target: Bytes) -> Batch:
    """The same cut of some layers."""
    count = len(layers)
    remote = (layers[:, None] * source_stride + cut.offsets[None, :]).ravel()
    targets = (layers[:, None] * target_stride + cut.targets[None, :]).ravel()
    fragments = zip(cut.within.tolist() * count, targets.tolist(), cut.sizes.tolist() * count, strict=True)
    return Batch(remote, np.tile(cut.lengths, count), target, list(fragments))
