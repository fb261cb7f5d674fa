"""What an instance does for requests: shared by the pools, the router and the balancer."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """A state of an instance, not of its weights."""

    PREFILL = "prefill"
    DECODE = "decode"
    HYBRID = "hybrid"
