"""The ratio: a pure function of what is seen, expected and measured. No clock, no memory, no side effect."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engine.balancer.costs import Costs
from engine.balancer.projection import Capacity, Flow, capacity, waiting
from engine.balancer.state import Forecast, InstanceState, Phase, Plan, PoolState
from engine.role import Role


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """How eager the planner is.

    Attributes:
        horizon_s: how far ahead waiting is projected, and the time in which backlog is to be worked off.
        hysteresis: share of the projected waiting that a change must save.
        dwell_s: seconds between two changes of role, of any instance.
        flip_wait_s: seconds of projected mean waiting that changing all instances must save; changing some, their
            share of it. What drain and switch lose is in the projection; this is for a forecast that may be wrong.
        utilisation: share of a pool's capacity that scale hints mean to use; the rest is for chance.
        minimum: instances that each role keeps.
        hybrid_margin: share by which hybrid instances must carry more than an overloaded split to be preferred; inf:
            they never are.
        hybrid_wait_s: seconds of projected mean waiting under the best split from which on it counts as overloaded.
        hybrid_room: share by which a split must carry more than the demand for hybrid instances to become one again.
        parallel_share, parallel_least: share of the instances that change at the same time, and how many may in any
            case; as the manager's.
    """

    horizon_s: float = 20.0
    hysteresis: float = 0.05
    dwell_s: float = 2.0
    flip_wait_s: float = 0.5
    utilisation: float = 0.9
    minimum: int = 1
    hybrid_margin: float = 0.25
    hybrid_wait_s: float = 2.0
    hybrid_room: float = 0.1
    parallel_share: float = 0.25
    parallel_least: int = 2


@dataclass(frozen=True, slots=True)
class Demand:
    """Instances of speed 1 that each kind of work would keep busy all the time.

    Attributes:
        prefill, decode: of the two pools.
        transfer: links that moving KV would keep busy.
        prefill_backlog_s, decode_backlog_s: seconds of work in the backlogs that are part of it.
    """

    prefill: float
    decode: float
    transfer: float
    prefill_backlog_s: float
    decode_backlog_s: float
    flow: Flow


MANY = 8
"""Splits that are projected at most between the present one and the one that carries most, among many instances."""

STANDING = {Role.PREFILL: 0, Role.HYBRID: 1, Role.DECODE: 2}

DEFAULTS = PlannerSettings()


def plan(state: PoolState, forecast: Forecast, costs: Costs, settings: PlannerSettings = DEFAULTS) -> Plan:
    """The roles that the instances should have.

    Of all splits the one under which requests will wait least, on the way to it and after, over the horizon: so what
    drain and switch lose counts against a change. It is taken only if it saves enough of the waiting and the dwell
    is over. A role without an instance is filled at once, by the split that carries most, whatever these say. Splits
    under which requests will wait long, because none carries the demand, give way to hybrid instances where those
    carry much more; a split comes back only when it carries the demand with room. Going to and fro between both
    changes every instance twice, so both ways ask for more than a forecast's noise.

    Instances that are changing count with the role they change to; lost ones do not count. The order of the
    instances makes no difference.
    """
    present = [i for i in state.instances if i.phase is not Phase.LOST]
    now_roles = {i.id: i.target or i.role for i in present}
    if not present:
        return Plan({}, "no instance answers")
    demand = demand_of(state, forecast, costs, settings)
    if len(present) < 2 * settings.minimum or len(present) == 1:
        roles = {i.id: Role.HYBRID for i in present}
        return _answer(roles, now_roles, demand, present, f"{len(present)} instance(s): hybrid", settings)
    ordered = sorted(present, key=_leaning)
    best = _best_of(ordered, demand, settings.minimum)
    carried = carries(present, best, demand)
    carried_now = carries(present, now_roles, demand)
    together = _hybrid_carries(present, demand)
    facts = (
        f"prefill {demand.prefill:.2f} + decode {demand.decode:.2f} instances wanted"
        f" (backlog {demand.prefill_backlog_s:.1f} s, {demand.decode_backlog_s:.1f} s; {forecast.model});"
        f" {_ratio(now_roles)} carries {carried_now:.2f}, {_ratio(best)} carries {carried:.2f}"
    )

    def answer(roles: dict[str, Role], verdict: str) -> Plan:
        return _answer(roles, now_roles, demand, present, f"{facts}: {verdict}", settings)

    hybrids = sum(role is Role.HYBRID for role in now_roles.values())
    dwells = hybrids in (0, len(present)) and state.now - state.changed_at < settings.dwell_s
    if _prefers_hybrid(carried, together, hybrids > 0, settings) and (
        hybrids or (not dwells and _overload_s(ordered, best, demand, settings) >= settings.hybrid_wait_s)
    ):
        return answer({i.id: Role.HYBRID for i in present}, f"hybrid carries {together:.2f}, go hybrid")
    if hybrids and dwells:
        return answer(now_roles, "stay, dwell")
    missing = _missing(now_roles, settings.minimum)
    if missing:
        return answer(best, f"too few {missing}, fill at once")
    if dwells:
        return answer(now_roles, "stay, dwell")
    roles, saved, stay = _least_waiting(ordered, now_roles, best, demand, costs, settings)
    flips = sum(roles[name] is not role for name, role in now_roles.items())
    if not flips:
        return answer(now_roles, f"stay, {stay:.2f} s of waiting")
    if saved < max(settings.hysteresis * stay, settings.flip_wait_s * flips / len(present)):
        return answer(now_roles, f"stay, only {saved:.2f} of {stay:.2f} s of waiting saved")
    return answer(roles, f"flip, {saved:.2f} of {stay:.2f} s of waiting saved")


def demand_of(state: PoolState, forecast: Forecast, costs: Costs, settings: PlannerSettings = DEFAULTS) -> Demand:
    """What arrives, and the backlog spread over the horizon. What waits for prefill will need decoding too."""
    queued, rate = state.waiting_prefill, forecast.rate
    flow = Flow(
        _finite(costs.prefill_s(rate)),
        _finite(costs.decode_s(rate)),
        _finite(costs.prefill_s(queued)),
        _finite(costs.decode_s(state.waiting_decode)),
        _finite(costs.decode_s(queued)),
        _finite(costs.prefill_s(state.coming)),
        _finite(costs.decode_s(state.coming)),
    )
    behind = flow.queued_decode + flow.queued_behind
    horizon = max(1e-3, settings.horizon_s)
    return Demand(
        flow.prefill + flow.queued_prefill / horizon,
        flow.decode + behind / horizon,
        _finite(costs.transfer_s(rate)),
        flow.queued_prefill,
        behind,
        flow,
    )


def roles_for(state: PoolState, prefill: int) -> dict[str, Role]:
    """Roles with `prefill` instances in the prefill pool, changed as cheaply as possible from the present ones.

    Donors of the decode pool are those that are empty soonest; all else equal, the instances go where they are
    faster.
    """
    ordered = sorted((i for i in state.instances if i.phase is not Phase.LOST), key=_leaning)
    return {i.id: Role.PREFILL if rank < prefill else Role.DECODE for rank, i in enumerate(ordered)}


def carries(instances: Iterable[InstanceState], roles: dict[str, Role], demand: Demand) -> float:
    """The multiple of `demand` that the roles carry; inf if nothing is asked for. Hybrids give each half."""
    prefill = decode = links = 0.0
    for instance in instances:
        role = roles[instance.id]
        share = 0.5 if role is Role.HYBRID else 1.0
        if role is not Role.DECODE:
            prefill += share * instance.prefill_speed
            links += share
        if role is not Role.PREFILL:
            decode += share * instance.decode_speed
    return min(_over(prefill, demand.prefill), _over(decode, demand.decode), _over(links, demand.transfer))


def best_split(present: list[InstanceState], demand: Demand, minimum: int) -> dict[str, Role]:
    """Throughput matching: the split that carries most; of equals, the one nearest to the present."""
    return _best_of(sorted(present, key=_leaning), demand, minimum)


def _best_of(ordered: list[InstanceState], demand: Demand, minimum: int) -> dict[str, Role]:
    now = sum((i.target or i.role) is Role.PREFILL for i in ordered)
    decode = sum(i.decode_speed for i in ordered)
    prefill = 0.0
    best, best_key = minimum, (-1.0, 0)
    for count, instance in enumerate(ordered, 1):
        prefill += instance.prefill_speed
        decode -= instance.decode_speed
        if minimum <= count <= len(ordered) - minimum:
            value = min(
                _over(prefill, demand.prefill), _over(decode, demand.decode), _over(float(count), demand.transfer)
            )
            key = (value, -abs(count - now))
            if key > best_key:
                best, best_key = count, key
    return {i.id: Role.PREFILL if rank < best else Role.DECODE for rank, i in enumerate(ordered)}


def _leaning(instance: InstanceState) -> tuple[float, int, float, str]:
    """Sorts those first that should prefill: by what they are better at, then as they are, then the idle."""
    role = instance.target or instance.role
    advantage = instance.prefill_speed / max(1e-9, instance.decode_speed)
    return (-round(advantage, 2), STANDING[role], _finite(instance.drain_s), instance.id)


def _least_waiting(
    ordered: list[InstanceState],
    before: dict[str, Role],
    best: dict[str, Role],
    demand: Demand,
    costs: Costs,
    settings: PlannerSettings,
) -> tuple[dict[str, Role], float, float]:
    """The roles with the least projected waiting, the seconds that they save, and those if all stay.

    Looks at all splits of few instances; of many, at some between the present one and that which carries most.
    """
    first_to_change = sorted(ordered, key=lambda i: (_finite(i.drain_s), i.id))
    room = max(settings.parallel_least, math.ceil(len(ordered) * settings.parallel_share))

    def projected(roles: dict[str, Role]) -> float:
        on_the_way = capacity(first_to_change, roles, costs.flip_s, room, costs.overlap)
        return waiting(demand.flow, on_the_way, settings.horizon_s)

    stay = projected(before)
    each = settings.flip_wait_s / len(ordered)
    if stay < each:
        return before, 0.0, stay
    choices = [(stay, 0, -1)]
    by_count: dict[int, dict[str, Role]] = {-1: before}
    for count in _counts(before, best, settings.minimum):
        roles = {i.id: Role.PREFILL if rank < count else Role.DECODE for rank, i in enumerate(ordered)}
        flips = sum(roles[name] is not role for name, role in before.items())
        by_count[count] = roles
        choices.append((projected(roles) + each * flips, flips, count))
    _, flips, count = min(choices)
    roles = by_count[count]
    return roles, stay - projected(roles), stay


def _counts(before: dict[str, Role], best: dict[str, Role], minimum: int) -> list[int]:
    """Sizes of the prefill pool worth projecting."""
    most = len(before) - minimum
    if len(before) <= 2 * MANY:
        return list(range(minimum, most + 1))
    now, then = (sum(role is Role.PREFILL for role in roles.values()) for roles in (before, best))
    between = {now + round((then - now) * share / MANY) for share in range(MANY + 2)} | {now - 1, now + 1}
    return sorted(count for count in between if minimum <= count <= most)


def _prefers_hybrid(carried: float, together: float, already: bool, settings: PlannerSettings) -> bool:
    """Whether instances that do both are worth it, or still are."""
    margin = 1 + settings.hybrid_margin
    if already:
        return carried < 1 + settings.hybrid_room and together >= carried * margin / (1 + settings.hysteresis)
    return carried < 1 and together >= carried * margin


def _overload_s(
    present: list[InstanceState], roles: dict[str, Role], demand: Demand, settings: PlannerSettings
) -> float:
    """Seconds of mean waiting over the horizon if the instances have had these roles all along."""
    pools = Capacity(
        sum(i.prefill_speed for i in present if roles[i.id] is Role.PREFILL),
        sum(i.decode_speed for i in present if roles[i.id] is Role.DECODE),
    )
    if sum(role is Role.PREFILL for role in roles.values()) < demand.transfer:
        # What waits for a link is in neither queue.
        return settings.horizon_s
    return waiting(demand.flow, pools, settings.horizon_s)


def _hybrid_carries(present: list[InstanceState], demand: Demand) -> float:
    """What the instances carry if each does both: the work of a request is done wherever there is time."""
    prefill_speed = sum(i.prefill_speed for i in present)
    decode_speed = sum(i.decode_speed for i in present)
    busy = demand.prefill / max(1e-9, prefill_speed) + demand.decode / max(1e-9, decode_speed)
    return _over(1.0, busy)


def _missing(roles: dict[str, Role], minimum: int) -> str:
    if all(role is Role.HYBRID for role in roles.values()):
        return "split roles"
    for role in (Role.PREFILL, Role.DECODE):
        if sum(have is role for have in roles.values()) < minimum:
            return str(role)
    return ""


def _answer(
    roles: dict[str, Role],
    before: dict[str, Role],
    demand: Demand,
    present: list[InstanceState],
    reason: str,
    settings: PlannerSettings,
) -> Plan:
    drain = {i.id: i.drain_s for i in present}
    flips = sorted(
        ((name, role) for name, role in roles.items() if before[name] is not role),
        key=lambda flip: (_finite(drain[flip[0]]), flip[0]),
    )
    if flips:
        reason += " " + ", ".join(f"{name} to {role}" for name, role in flips[:4])
        reason += f" and {len(flips) - 4} more" if len(flips) > 4 else ""
    return Plan(roles, reason, carries(present, roles, demand), _scale_hint(present, demand, settings), tuple(flips))


def _scale_hint(present: list[InstanceState], demand: Demand, settings: PlannerSettings) -> int:
    """Instances to add so that both pools run at the wanted utilisation; -1 if one fewer would still do."""
    pools = (
        (demand.prefill, sum(i.prefill_speed for i in present) / len(present)),
        (demand.decode, sum(i.decode_speed for i in present) / len(present)),
    )
    wanted = sum(max(settings.minimum, math.ceil(d / max(1e-9, s * settings.utilisation))) for d, s in pools)
    more = wanted - len(present)
    # One is given up only where N - 1 still carry the load with room: the load that comes back is larger by
    # N / (N - 1) for each of those that stay.
    return more if more >= 0 else (-1 if more < -1 or len(present) > 2 * wanted else 0)


def _ratio(roles: dict[str, Role]) -> str:
    counts = [sum(have is role for have in roles.values()) for role in (Role.PREFILL, Role.DECODE, Role.HYBRID)]
    return f"{counts[0]}:{counts[1]}" + (f"+{counts[2]}" if counts[2] else "")


def _over(capacity: float, demand: float) -> float:
    return capacity / demand if demand > 1e-9 else math.inf


def _finite(value: float) -> float:
    """NaN, infinities and negative numbers, as at zero traffic or from a clock that jumped, ask for nothing."""
    return value if math.isfinite(value) and value > 0 else 0.0
