"""Which transport to a peer: the fastest that works, by measurement, with the reason for each that was not taken."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from engine.interconnect.errors import InterconnectError, Unavailable
from engine.interconnect.metadata import PeerMetadata
from engine.interconnect.transport import Connection, Transport

PROBE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why.

    Attributes:
        name: of the transport.
        connection: open, to the peer.
        bytes_per_second: as measured now, checks included.
        is_enough: False if it is below what was needed: then requests are better off on one instance (hybrid).
        reasons: one sentence for every transport that was looked at, the chosen one included.
    """

    name: str
    connection: Connection
    bytes_per_second: float
    is_enough: bool
    reasons: dict[str, str]


def choose(
    transports: Mapping[str, Transport],
    offers: Mapping[str, PeerMetadata],
    *,
    deadline: float,
    needed: float = 0.0,
    by_name: frozenset[str] = frozenset(),
    probe_bytes: int = PROBE_BYTES,
) -> Choice:
    """Connect by every transport that both have, measure, keep the fastest and close the others.

    Args:
        transports: ours, by name.
        offers: the peer's metadata, by transport.
        deadline: instant of `time.monotonic()`; each transport gets its share of the time left.
        needed: bytes a second that the traffic takes.
        by_name: transports that somebody asked for by name. The foreign ones are never taken otherwise.

    Raises:
        Unavailable: none works; the message gives all reasons.
    """
    reasons: dict[str, str] = {}
    best: tuple[float, str, Connection] | None = None
    names = [name for name in transports if _worth_trying(transports[name], offers, by_name, reasons)]
    for at, name in enumerate(names):
        share = time.monotonic() + max(0.0, deadline - time.monotonic()) / (len(names) - at)
        try:
            connection = transports[name].connect(offers[name], share)
        except InterconnectError as error:
            reasons[name] = f"cannot connect: {error}"
            continue
        try:
            speed = connection.probe(probe_bytes, share)
        except InterconnectError as error:
            connection.close()
            reasons[name] = f"connected, but could not be measured: {error}"
            continue
        reasons[name] = f"measured {speed / 1e9:.2f} GB/s"
        if best and best[0] >= speed:
            connection.close()
            continue
        if best:
            best[2].close()
        best = speed, name, connection
    if best is None:
        raise Unavailable("no transport to this peer: " + "; ".join(f"{name}: {why}" for name, why in reasons.items()))
    speed, name, connection = best
    enough = speed >= needed
    reasons[name] += ", the fastest" + ("" if enough else f", but {needed / 1e9:.2f} GB/s are needed")
    return Choice(name, connection, speed, enough, reasons)


def _worth_trying(
    transport: Transport, offers: Mapping[str, PeerMetadata], by_name: frozenset[str], reasons: dict[str, str]
) -> bool:
    name = transport.name
    available = transport.available()
    if not available.ok:
        reasons[name] = f"unavailable: {available.reason}"
    elif name not in offers:
        reasons[name] = "the peer does not offer it"
    elif transport.capabilities().only_by_name and name not in by_name:
        reasons[name] = "only taken when asked for by name"
    else:
        return True
    return False
