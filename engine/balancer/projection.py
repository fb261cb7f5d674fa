"""How long requests will wait if the roles become such and such: a fluid model of both queues over the horizon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.balancer.state import InstanceState, Phase
from engine.role import Role

STEP_S = 1.0
KNOWN_S = 3.0
"""Seconds in which work that is known to come is taken to come."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Work in seconds of an instance of speed 1, and its rates in instances.

    Attributes:
        prefill, decode: rates that are expected to arrive.
        queued_prefill, queued_decode: what waits before either pool.
        queued_behind: decode work that the queue before prefill brings with it.
        coming_prefill, coming_decode: what is known to come within KNOWN_S; counts where it exceeds the rates.
    """

    prefill: float
    decode: float
    queued_prefill: float = 0.0
    queued_decode: float = 0.0
    queued_behind: float = 0.0
    coming_prefill: float = 0.0
    coming_decode: float = 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Instances at work in each pool over time.

    Attributes:
        prefill, decode: now, in instances of speed 1.
        changes: (seconds from now, change of prefill, change of decode), by time.
    """

    prefill: float
    decode: float
    changes: tuple[tuple[float, float, float], ...] = ()


def capacity(
    instances: Iterable[InstanceState], wanted: Mapping[str, Role], flip_s: float, room: int, overlap: float = 0.0
) -> Capacity:
    """What the pools can do on the way to the wanted roles.

    Args:
        instances: sorted with those first that change first.
        wanted: role by id.
        flip_s: seconds to switch and verify.
        room: instances that change at the same time; more wait for their turn and work on meanwhile.
        overlap: share of its prefill speed that an instance has while it drains from decode.
    """
    now = [0.0, 0.0]
    changes: list[tuple[float, float, float]] = []
    begins, together, slowest = 0.0, 0, 0.0
    for instance in instances:
        role = wanted[instance.id]
        if role is instance.role and instance.phase is Phase.READY and role is not Role.HYBRID:
            # Nearly all of a thousand instances end here.
            if role is Role.PREFILL:
                now[0] += instance.prefill_speed
            else:
                now[1] += instance.decode_speed
            continue
        drains = instance.role is Role.DECODE and instance.phase is not Phase.SWITCHING
        shares = overlap if drains and role is not Role.DECODE else 0.0
        drain = instance.drain_s if drains else 0.0
        if role is instance.role and instance.phase is not Phase.SWITCHING:
            _add(now, instance, role)
        elif instance.phase is Phase.READY:
            if together == room:
                begins, together, slowest = begins + slowest, 0, 0.0
            together += 1
            slowest = max(slowest, drain + flip_s)
            if begins:
                _add(now, instance, instance.role)
                changes.append(_change(begins, instance, instance.role, -1.0))
            changes += _arrival(begins, drain, flip_s, instance, role, shares)
        else:
            changes += _arrival(0.0, drain, flip_s, instance, role, shares)
    return Capacity(now[0], now[1], tuple(sorted(changes)))


def waiting(flow: Flow, capacity: Capacity, horizon_s: float) -> float:
    """Seconds that a request waits in both queues together, averaged over the horizon.

    Args:
        flow: what waits and arrives.
        capacity: of the pools.
        horizon_s: seconds to look ahead.
    """
    queued, behind, pending = flow.queued_prefill, flow.queued_behind, flow.queued_decode
    prefill, decode = capacity.prefill, capacity.decode
    changes = list(capacity.changes)
    total, at = 0.0, 0.0
    while at < horizon_s:
        while changes and changes[0][0] <= at:
            _, more_prefill, more_decode = changes.pop(0)
            prefill += more_prefill
            decode += more_decode
        known = at < KNOWN_S
        queued += STEP_S * (max(flow.prefill, flow.coming_prefill / KNOWN_S) if known else flow.prefill)
        behind += STEP_S * (max(flow.decode, flow.coming_decode / KNOWN_S) if known else flow.decode)
        done = min(queued, prefill * STEP_S)
        passed = behind * done / queued if queued > 0 else behind
        queued -= done
        behind -= passed
        pending += passed
        pending -= min(pending, decode * STEP_S)
        total += STEP_S * (_wait(queued, prefill, horizon_s) + _wait(pending, decode, horizon_s))
        at += STEP_S
    return total / horizon_s


def _wait(work: float, instances: float, most: float) -> float:
    """Seconds until an empty queue; a pool with nobody in it keeps requests for the horizon."""
    if work <= 0:
        return 0.0
    return min(most, work / instances) if instances > 0 else most


def _arrival(
    begins: float, drain: float, flip_s: float, instance: InstanceState, role: Role, shares: float
) -> list[tuple[float, float, float]]:
    """The new role at part strength while the old one drains, nothing during the switch, then all of it."""
    changes = [_change(begins + drain + flip_s, instance, role, 1.0)]
    if shares:
        part = shares * instance.prefill_speed
        changes += [(begins, part, 0.0), (begins + drain, -part, 0.0)]
    return changes


def _add(now: list[float], instance: InstanceState, role: Role) -> None:
    _, prefill, decode = _change(0.0, instance, role, 1.0)
    now[0] += prefill
    now[1] += decode


def _change(at: float, instance: InstanceState, role: Role, sign: float) -> tuple[float, float, float]:
    share = 0.5 if role is Role.HYBRID else 1.0
    prefill = 0.0 if role is Role.DECODE else share * instance.prefill_speed
    decode = 0.0 if role is Role.PREFILL else share * instance.decode_speed
    return at, sign * prefill, sign * decode
