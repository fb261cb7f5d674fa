"""What an engine tells its peers about itself, so that they can connect. Never an address of memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine.interconnect.errors import LayoutMismatch, PeerLost
from engine.interconnect.layout import KVLayout

MAX_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class PeerMetadata:
    """One engine, reachable by one transport.

    Attributes:
        transport: name of the transport that exported this.
        engine_id: which engine; stays the same over restarts.
        epoch: which incarnation of it; differs after every restart.
        address: where it listens, in the transport's own form; empty if it does not.
        regions: layout of each registered region, by name.
        probe_lease: a lease that never ends, on a region of random bytes for measuring.
    """

    transport: str
    engine_id: str
    epoch: int
    address: str
    regions: dict[str, KVLayout]
    probe_lease: str

    def to_json(self) -> str:
        content = {
            "transport": self.transport,
            "engine_id": self.engine_id,
            "epoch": self.epoch,
            "address": self.address,
            "regions": {name: layout.to_dict() for name, layout in self.regions.items()},
            "probe_lease": self.probe_lease,
        }
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str | bytes) -> PeerMetadata:
        """What `to_json` gave.

        Raises:
            PeerLost: it is anything else.
            LayoutMismatch: a layout in it is none.
        """
        try:
            if len(text) > MAX_TEXT:
                raise ValueError("too long")
            content: dict[str, Any] = json.loads(text)
            regions = {str(name): KVLayout.from_dict(layout) for name, layout in content["regions"].items()}
            return cls(
                str(content["transport"]),
                str(content["engine_id"]),
                int(content["epoch"]),
                str(content["address"]),
                regions,
                str(content["probe_lease"]),
            )
        except LayoutMismatch:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PeerLost(f"this is no metadata of a peer: {error}") from None
