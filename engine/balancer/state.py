"""What the planner sees: instances, backlog, forecast. Frozen: a plan is a function of these and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.balancer.load import NOTHING, Load
from engine.role import Role


class Phase(StrEnum):
    """Where an instance is in a change of role."""

    READY = "ready"
    DRAINING = "draining"
    SWITCHING = "switching"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class InstanceState:
    """One instance as the monitor saw it last.

    Attributes:
        id: stable name.
        epoch: grows by one with each start of the process; orders for an older epoch are void.
        role: its role now; while it switches, the one that it had.
        target: the role it is changing to, or None.
        prefill_speed, decode_speed: against the instance that `Costs` describes.
        running: sequences in its decode batch, those whose KV is on its way included.
        remaining_s: predicted seconds of decode work left in it at full batch.
        drain_s: predicted seconds until it would be empty if nothing came any more.
        kv_used_tokens: KV tokens held.
        changed_at: when its role last changed, on the balancer's clock; -inf if never.
    """

    id: str
    role: Role
    epoch: int = 0
    phase: Phase = Phase.READY
    target: Role | None = None
    prefill_speed: float = 1.0
    decode_speed: float = 1.0
    running: int = 0
    remaining_s: float = 0.0
    drain_s: float = 0.0
    kv_used_tokens: float = 0.0
    changed_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class PoolState:
    """Both pools at one moment.

    Attributes:
        now: seconds on the balancer's clock.
        instances: those that answer, and those that stopped (phase LOST), in any order.
        waiting_prefill: load of requests that wait for prefill. Their output still has to be decoded too.
        waiting_decode: load of requests that are prefilled and wait for a place to decode.
        coming: load that is known to come but has not arrived: crops of pages whose layout is being read.
        changed_at: when any role last changed.
    """

    now: float
    instances: tuple[InstanceState, ...]
    waiting_prefill: Load = NOTHING
    waiting_decode: Load = NOTHING
    coming: Load = NOTHING
    changed_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected to arrive.

    Attributes:
        rate: load a second.
        model: name of the time series model that won the back-test.
        error: its mean relative error at this lead, 0 to about 1; 0 while unknown.
    """

    rate: Load = NOTHING
    model: str = "constant"
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What should be.

    Attributes:
        roles: role of every instance that takes part.
        reason: one line: the numbers that went in and the decision that came out.
        carries: how many times the present demand the planned split carries; inf without demand.
        scale_hint: instances to add (positive) or that could go (negative).
    """

    roles: Mapping[str, Role]
    reason: str
    carries: float = float("inf")
    scale_hint: int = 0
    flips: tuple[tuple[str, Role], ...] = field(default=())
