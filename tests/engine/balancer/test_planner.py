"""The planner as a pure function: what holds for any state, forecast and costs."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.balancer.costs import Costs
from engine.balancer.load import Load, load_of
from engine.balancer.planner import DEFAULTS, carries, demand_of, plan, roles_for
from engine.balancer.state import Forecast, InstanceState, Phase, PoolState
from engine.role import Role

COSTS = Costs()
numbers = st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, math.nan, math.inf, -1.0]))
loads = st.builds(Load, numbers, numbers, numbers, numbers, numbers, numbers, numbers)
any_instance = st.builds(
    InstanceState,
    id=st.uuids().map(str),
    role=st.sampled_from(Role),
    epoch=st.integers(0, 3),
    phase=st.sampled_from(Phase),
    target=st.one_of(st.none(), st.sampled_from(Role)),
    prefill_speed=st.floats(0.1, 4),
    decode_speed=st.floats(0.1, 4),
    running=st.integers(0, 64),
    remaining_s=numbers,
    drain_s=numbers,
    kv_used_tokens=numbers,
    changed_at=st.floats(-10, 1000),
)
states = st.builds(
    PoolState,
    now=st.floats(0, 1000),
    instances=st.lists(any_instance, max_size=12, unique_by=lambda i: i.id).map(tuple),
    waiting_prefill=loads,
    waiting_decode=loads,
    coming=loads,
    changed_at=st.floats(-100, 2000),
)
forecasts = st.builds(Forecast, rate=loads)


def pool(prefill: int, decode: int, **more: object) -> tuple[InstanceState, ...]:
    roles = [Role.PREFILL] * prefill + [Role.DECODE] * decode
    return tuple(InstanceState(f"i{n}", role, **more) for n, role in enumerate(roles))  # type: ignore[arg-type]


def rate(prefill: float, decode: float, output: float = 300.0) -> Forecast:
    """A forecast that asks for so many instances of each kind."""
    one = load_of(1000, 40, output)
    scaled = one.scaled(prefill / COSTS.prefill_s(one), decode / COSTS.decode_s(one))
    return Forecast(scaled)


@given(states, forecasts)
@settings(max_examples=60, deadline=None)
def test_every_instance_that_answers_gets_one_role_and_no_other_does(state: PoolState, forecast: Forecast) -> None:
    found = plan(state, forecast, COSTS)
    assert set(found.roles) == {i.id for i in state.instances if i.phase is not Phase.LOST}
    assert {name for name, _ in found.flips} <= set(found.roles)
    assert "\n" not in found.reason


@given(states, forecasts)
@settings(max_examples=60, deadline=None)
def test_no_pool_is_left_empty(state: PoolState, forecast: Forecast) -> None:
    roles = list(plan(state, forecast, COSTS).roles.values())
    if roles:
        assert any(role is not Role.DECODE for role in roles)
        assert any(role is not Role.PREFILL for role in roles)


@given(states, forecasts, st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_order_of_instances_makes_no_difference(state: PoolState, forecast: Forecast, rng: random.Random) -> None:
    shuffled = list(state.instances)
    rng.shuffle(shuffled)
    other = PoolState(
        state.now, tuple(shuffled), state.waiting_prefill, state.waiting_decode, state.coming, state.changed_at
    )
    assert plan(other, forecast, COSTS).flips == plan(state, forecast, COSTS).flips


@given(st.integers(1, 7), st.floats(0.05, 0.85), st.lists(st.floats(0.9, 1.1), min_size=2, max_size=2))
@settings(max_examples=50, deadline=None)
def test_a_forecast_that_only_jitters_flips_nothing(prefill: int, use: float, jitter: list[float]) -> None:
    """What the present split carries with room stays carried when the forecast errs by a tenth."""
    forecast = rate(use * prefill * jitter[0] * 0.9, use * (8 - prefill) * jitter[1] * 0.9)
    assert not plan(PoolState(100.0, pool(prefill, 8 - prefill)), forecast, COSTS).flips


def test_decode_heavy_traffic_moves_instances_to_decode_and_says_why() -> None:
    found = plan(PoolState(100.0, pool(5, 3)), rate(2.7, 4.4), COSTS)
    assert [role for _, role in found.flips] == [Role.DECODE, Role.DECODE]
    assert "5:3" in found.reason
    assert "flip" in found.reason


def test_backlog_counts_as_demand() -> None:
    quiet = PoolState(100.0, pool(4, 4))
    one = load_of(1000, 40, 300)
    queued = PoolState(100.0, pool(4, 4), waiting_prefill=one.scaled(200 / COSTS.prefill_s(one)))
    assert demand_of(queued, rate(3, 3), COSTS).prefill > demand_of(quiet, rate(3, 3), COSTS).prefill + 5
    assert demand_of(queued, rate(3, 3), COSTS).decode > demand_of(quiet, rate(3, 3), COSTS).decode


def test_long_outputs_weigh_more_than_their_number_in_the_context() -> None:
    short, long = load_of(100, 0, 10), load_of(1000, 0, 1000)
    both = short.plus(long)
    assert both.context > (short.context + long.context) / 2
    assert both.context == pytest.approx((10 * 105 + 1000 * 1500) / 1010)


def test_dwell_holds_a_second_change_back() -> None:
    state = PoolState(100.0, pool(5, 3), changed_at=100.0 - DEFAULTS.dwell_s / 2)
    assert not plan(state, rate(2.7, 4.4), COSTS).flips


def test_donors_are_those_that_are_empty_soonest() -> None:
    instances = (
        InstanceState("p", Role.PREFILL),
        InstanceState("busy", Role.DECODE, drain_s=30.0, running=60),
        InstanceState("idle", Role.DECODE, drain_s=1.0, running=2),
        InstanceState("half", Role.DECODE, drain_s=9.0, running=30),
    )
    assert roles_for(PoolState(0.0, instances), 2)["idle"] is Role.PREFILL


def test_faster_prefill_devices_prefill() -> None:
    instances = tuple(
        InstanceState(f"i{n}", Role.DECODE if n < 2 else Role.PREFILL, prefill_speed=3.0 if n < 2 else 1.0)
        for n in range(4)
    )
    roles = roles_for(PoolState(0.0, instances), 2)
    assert [roles[f"i{n}"] for n in range(4)] == [Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE]


def test_one_instance_does_both() -> None:
    assert plan(PoolState(0.0, pool(1, 0)), rate(0.2, 0.2), COSTS).roles == {"i0": Role.HYBRID}


def test_two_instances_go_hybrid_where_a_split_cannot_carry_the_load() -> None:
    found = plan(PoolState(100.0, pool(1, 1)), rate(1.6, 0.3), COSTS)
    assert set(found.roles.values()) == {Role.HYBRID}


def test_a_link_too_slow_for_the_traffic_makes_instances_hybrid() -> None:
    slow = Costs(bandwidth_bytes_s=1e6)
    assert set(plan(PoolState(100.0, pool(4, 4)), rate(3, 3), slow).roles.values()) == {Role.HYBRID}


def hybrids(count: int) -> tuple[InstanceState, ...]:
    return tuple(InstanceState(f"i{n}", Role.HYBRID) for n in range(count))


def test_a_split_that_just_fails_stays_a_split_until_requests_wait_long() -> None:
    just_failing = rate(1.05, 2.1)
    assert Role.HYBRID not in plan(PoolState(100.0, pool(1, 3)), just_failing, COSTS).roles.values()
    backlog = just_failing.rate.scaled(20.0)
    waited = plan(PoolState(100.0, pool(1, 3), waiting_prefill=backlog), just_failing, COSTS)
    assert set(waited.roles.values()) == {Role.HYBRID}


def test_without_hybrids_an_overload_is_carried_by_the_best_split() -> None:
    overloaded = PoolState(100.0, pool(2, 2), waiting_prefill=rate(1.05, 2.1).rate.scaled(20.0))
    assert set(plan(overloaded, rate(1.05, 2.1), COSTS).roles.values()) == {Role.HYBRID}
    never = replace(DEFAULTS, hybrid_margin=math.inf)
    roles = list(plan(overloaded, rate(1.05, 2.1), COSTS, never).roles.values())
    assert (roles.count(Role.PREFILL), roles.count(Role.DECODE)) in {(1, 3), (2, 2)}
    assert Role.HYBRID not in plan(PoolState(100.0, hybrids(4)), rate(1.05, 2.1), COSTS, never).roles.values()


def test_hybrids_stay_while_a_split_would_only_just_do() -> None:
    assert not plan(PoolState(100.0, hybrids(4)), rate(0.95, 2.1), COSTS).flips
    roles = list(plan(PoolState(100.0, hybrids(4)), rate(0.8, 1.8), COSTS).roles.values())
    assert (roles.count(Role.PREFILL), roles.count(Role.DECODE)) == (1, 3)


def test_a_forecast_that_jitters_about_what_a_split_carries_changes_each_instance_at_most_once() -> None:
    rng = random.Random(7)
    instances, changed_at, changes = pool(1, 3), -math.inf, 0
    for second in range(120):
        now = 100.0 + second
        share = rng.uniform(0.94, 1.08)
        found = plan(PoolState(now, instances, changed_at=changed_at), rate(share, 2.1 * share), COSTS)
        changes += len(found.flips)
        instances = tuple(InstanceState(i.id, found.roles[i.id]) for i in instances)
        changed_at = now if found.flips else changed_at
    assert changes <= 4


def test_zero_traffic_changes_nothing() -> None:
    assert not plan(PoolState(100.0, pool(4, 4)), Forecast(), COSTS).flips


def test_a_pool_that_vanished_is_filled_in_spite_of_the_dwell() -> None:
    instances = (*pool(3, 0), InstanceState("gone", Role.DECODE, phase=Phase.LOST))
    found = plan(PoolState(100.0, instances, changed_at=100.0), rate(0.6, 0.6), COSTS)
    assert Role.DECODE in found.roles.values()


def test_overload_asks_for_more_instances_and_idleness_for_fewer() -> None:
    assert plan(PoolState(100.0, pool(4, 4)), rate(6, 6), COSTS).scale_hint >= 5
    assert plan(PoolState(100.0, pool(4, 4)), rate(0.5, 0.5), COSTS).scale_hint == -1
    assert plan(PoolState(100.0, pool(4, 4)), rate(3.4, 3.4), COSTS).scale_hint == 0


def test_carries_is_the_scarcer_pool() -> None:
    instances = pool(4, 4)
    demand = demand_of(PoolState(0.0, instances), rate(2, 1), COSTS)
    roles = {i.id: i.role for i in instances}
    assert carries(instances, roles, demand) == pytest.approx(2.0, rel=0.01)


def test_a_thousand_instances_are_planned_and_only_some_splits_projected() -> None:
    found = plan(PoolState(100.0, pool(600, 400)), rate(300, 500), COSTS)
    after = sum(role is Role.PREFILL for role in found.roles.values())
    assert 350 <= after <= 500
