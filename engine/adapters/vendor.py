"""What a vendor says about itself: there or not, and what it has for each operator. Light: no torch in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.adapters.catalogue import Mode
from engine.interconnect.layout import Order


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a vendor can be used here, and the reason in one sentence."""

    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Capability:
    """What a vendor has for an operator in a mode.

    Attributes:
        how: in a few words, for people: "oneDNN with reordered weights", "LMDeploy's Triton kernel".
        target: "module:function" with the signature of the catalogue, where the operator is ours to call; None where
            LMDeploy's own backend for this vendor holds it.
    """

    how: str
    target: str | None = None


class Vendor(Protocol):
    """An adapter, as the dispatcher sees it. Its module may import torch only within its methods."""

    name: str
    kv_order: Order

    def availability(self) -> Availability:
        """Whether its packages and a device are here. Never raises."""
        ...

    def graph_mode(self) -> Availability:
        """Whether it can run graphs here."""
        ...

    def capabilities(self, mode: Mode) -> Mapping[str, Capability]:
        """What it has, by the operator's name; what is not in there, it has not."""
        ...
