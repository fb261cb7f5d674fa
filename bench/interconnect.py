"""`pagemill bench interconnect`: how fast KV blocks move between two processes, against a plain copy and a raw socket.

Both sides of a comparison alternate in the same run, and the fastest round of each counts: whatever else the machine
does only ever adds time. The medians are among the details. On a machine that is busy throughout, the figures say more
about the machine: two processes and their threads have to wait for a turn more often than one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.figures import Report, at_least, at_most
from bench.interconnect_peer import BLOCKS, LAYERS, LAYOUT, Peer, contents, endpoint, tuned
from engine.interconnect.arena import SharedArena
from engine.interconnect.layout import KVLayout, Order
from engine.interconnect.plan import BlockPairs
from engine.interconnect.transport import Connection
from engine.interconnect.transports.catalogue import TRANSPORTS, availabilities

REACH = {"shared_memory": 0.8, "tcp": 0.9}
WARM_UP = 2
PATIENCE_SECONDS = 60.0
OURS = ("in_process", "shared_memory", "tcp")
# Blocks of 64 tokens there, 16 tokens here, and camb's order: every number has to find a new place.
REPACKED = KVLayout.separate(
    layers=LAYERS,
    blocks=BLOCKS * 4,
    block_size=16,
    heads=2,
    dims={"k": 64, "v": 64},
    dtype="bfloat16",
    order=Order.HEADS_FIRST,
)


@dataclass(slots=True)
class Times:
    """Seconds of the rounds of one thing."""

    nbytes: int
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Bytes a second in the fastest round."""
        return self.nbytes / min(self.seconds)

    def show(self) -> dict[str, float]:
        """GB/s."""
        return {
            "best": round(self.best / 1e9, 3),
            "median": round(self.nbytes / median(self.seconds) / 1e9, 3),
        }


def measure(rounds: int = 25, extra: Sequence[str] = ()) -> Report:
    """Move 64 MiB by every transport of ours, and by those of others that are named.

    Args:
        rounds: at least so many of each kind.
        extra: names of transports of others.

    Raises:
        ModuleNotFoundError: a named transport is unavailable here.
    """
    available = availabilities()
    for name in extra:
        if name not in TRANSPORTS or not available[name].ok:
            raise ModuleNotFoundError(f"{name}: {available[name].reason if name in available else 'unknown transport'}")
    moved: dict[str, dict[str, Any]] = {}
    wrong = held = 0
    against: dict[str, float] = {}
    for name in (*OURS, *extra):
        with Peer(name) as peer:
            found = _Bench(name, peer, rounds).run()
        moved[name] = found.details
        wrong += found.wrong
        held += found.held
        if found.against is not None:
            against[name] = found.against
    figures = (
        at_least("shared_memory_against_copy", against["shared_memory"], "ratio", REACH["shared_memory"]),
        at_least("tcp_against_raw_socket", against["tcp"], "ratio", REACH["tcp"]),
        at_most("wrong_bytes", wrong, "bytes", 0),
        at_most("blocks_held_afterwards", held, "blocks", 0),
    )
    failures = [
        f"{figure.name} is {figure.value}, to reach {figure.reach} {figure.unit}" for figure in figures if not figure.ok
    ]
    details = {
        "gigabytes_a_second": moved,
        "unavailable": {name: one.reason for name, one in available.items() if not one.ok},
        "bytes": LAYOUT.span,
        "rounds": rounds,
    }
    return Report("interconnect", figures, details, tuple(failures))


@dataclass(slots=True)
class _Found:
    details: dict[str, Any]
    wrong: int
    held: int
    against: float | None


class _Bench:
    """All that is measured of one transport."""

    def __init__(self, name: str, peer: Peer, rounds: int) -> None:
        self._name = name
        self._peer = peer
        self._rounds = rounds
        self._blocks = list(range(BLOCKS))
        self._scattered = np.random.default_rng(7).permutation(BLOCKS).tolist()

    def run(self) -> _Found:
        reader = endpoint(self._name, "reader")
        arena = SharedArena(LAYOUT.span)
        here = np.frombuffer(arena.buffer, np.uint8, LAYOUT.span)
        here[:] = 1
        reader.register(arena.buffer, LAYOUT)
        connection = reader.connect(self._peer.metadata, time.monotonic() + PATIENCE_SECONDS)
        try:
            baseline = self._baseline(here)
            times = self._alternate(connection, baseline)
            wrong = int((here != contents()).sum())
            small = {f"{blocks}_blocks": self._small(connection, blocks) for blocks in (1, 8)}
        finally:
            reader.close()
        times["repacked"] = self._repacked()
        details: dict[str, Any] = {name: one.show() for name, one in times.items()} | {"small": small}
        ratio = _ratio(times) if baseline else None
        if ratio is not None:
            details["against_baseline"] = {
                name: round(times[name].best / times["baseline"].best, 3)
                for name in ("contiguous", "scattered", "cold")
            }
        return _Found(details, wrong, self._peer.held(), ratio)

    def _alternate(self, connection: Connection, baseline: Callable[[], None] | None) -> dict[str, Times]:
        names = ("contiguous", "scattered", "cold", *(("baseline",) if baseline else ()))
        times = {name: Times(LAYOUT.span) for name in names}
        for number in range(WARM_UP + self._rounds):
            # The last transfer of a round puts every block where it is at the peer, to be compared at the end.
            round_ = {"baseline": _timed(baseline)} if baseline else {}
            round_["scattered"] = self._leased(connection, self._scattered, self._scattered[::-1])
            round_["cold"] = self._cold(connection)
            round_["contiguous"] = self._leased(connection, self._blocks, self._blocks)
            if number >= WARM_UP:
                for name, seconds in round_.items():
                    times[name].seconds.append(seconds)
        return times

    def _leased(self, connection: Connection, remote: list[int], local: list[int]) -> float:
        """Seconds to pull blocks that were leased, and sealed, before: the prefill's answer is under way meanwhile."""
        lease = self._peer.reserve(self._blocks, sealed=True)
        pairs = BlockPairs.of(remote, local)
        seconds = _timed(lambda: _pull(connection, lease, pairs))
        connection.release(lease, time.monotonic() + PATIENCE_SECONDS)
        return seconds

    def _cold(self, connection: Connection) -> float:
        """Seconds from asking for a lease to the last byte, checksums taken at both ends within."""
        started = time.perf_counter()
        lease = self._peer.reserve(self._blocks, sealed=False)
        _pull(connection, lease, BlockPairs.of(self._blocks, self._blocks))
        seconds = time.perf_counter() - started
        connection.release(lease, time.monotonic() + PATIENCE_SECONDS)
        return seconds

    def _small(self, connection: Connection, blocks: int) -> dict[str, float]:
        """Milliseconds for a few blocks, all layers."""
        lease = self._peer.reserve(self._blocks, sealed=True)
        pairs = BlockPairs.of(self._blocks[:blocks], self._blocks[:blocks])
        seconds = [_timed(lambda: _pull(connection, lease, pairs)) for _ in range(10 * self._rounds)]
        connection.release(lease, time.monotonic() + PATIENCE_SECONDS)
        return {
            "best_milliseconds": round(min(seconds) * 1e3, 3),
            "median_milliseconds": round(median(seconds) * 1e3, 3),
            "bytes": blocks * LAYERS * LAYOUT.block_bytes(),
        }

    def _repacked(self) -> Times:
        reader = endpoint(self._name, "repacker")
        arena = SharedArena(REPACKED.span)
        reader.register(arena.buffer, REPACKED)
        connection = reader.connect(self._peer.metadata, time.monotonic() + PATIENCE_SECONDS)
        times = Times(LAYOUT.span)
        try:
            lease = self._peer.reserve(self._blocks, sealed=True)
            pairs = BlockPairs.of(self._blocks, range(REPACKED.blocks))
            for number in range(1 + max(1, self._rounds // 3)):
                seconds = _timed(lambda: _pull(connection, lease, pairs))
                if number:
                    times.seconds.append(seconds)
            connection.release(lease, time.monotonic() + PATIENCE_SECONDS)
        finally:
            reader.close()
        return times

    def _baseline(self, target: npt.NDArray[np.uint8]) -> Callable[[], None] | None:
        """The same bytes into the same place, without blocks, leases and checks."""
        if self._name == "tcp":
            return self._raw_socket(target)
        if self._name not in ("in_process", "shared_memory"):
            return None
        self._source = SharedArena(LAYOUT.span)
        source = np.frombuffer(self._source.buffer, np.uint8, LAYOUT.span)
        source[:] = contents()
        return lambda: np.copyto(target, source)

    def _raw_socket(self, target: npt.NDArray[np.uint8]) -> Callable[[], None]:
        """Out of the same process, too."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._peer.send_raw(listener.getsockname()[1])
        sock = tuned(listener.accept()[0])
        listener.close()
        view = target.data

        def receive() -> None:
            sock.sendall(b"!")
            got = 0
            while got < len(view):
                got += sock.recv_into(view[got:])

        return receive


def _ratio(times: dict[str, Times]) -> float:
    return times["contiguous"].best / times["baseline"].best


def _pull(connection: Connection, lease: Any, pairs: BlockPairs) -> None:
    connection.submit(lease, pairs, range(LAYERS), time.monotonic() + PATIENCE_SECONDS).result()


def _timed(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
