"""The loop over all parts, with instances in memory."""

from __future__ import annotations

from engine.balancer.balancer import Balancer, Mode
from engine.balancer.costs import Costs
from engine.balancer.load import load_of
from engine.balancer.manager import Manager
from engine.balancer.monitor import Monitor
from engine.balancer.predictor import Predictor
from engine.role import Role
from tests.engine.balancer.test_manager import Fleet, fleet

COSTS = Costs()


def balancer(instances: Fleet, mode: Mode = Mode.ACT) -> Balancer:
    return Balancer(Monitor(), Predictor(COSTS), Manager(instances), COSTS, mode=mode)


def decode_heavy(of: Balancer, instances: Fleet, seconds: int, begin: int = 0) -> None:
    """Traffic that wants about two instances for prefill and five and a half for decode."""
    for second in range(begin, begin + seconds):
        loads = [load_of(1000, 40, 900)] * 35
        of.monitor.arrived(loads)
        of.monitor.started(loads)
        of.tick(float(second), list(instances.states.values()))


def test_roles_follow_what_arrives_and_the_log_says_why() -> None:
    instances = fleet(4, 4)
    instances.drained |= set(instances.states)
    of = balancer(instances)
    decode_heavy(of, instances, 30)
    decoding = sum(state.role is Role.DECODE for state in instances.states.values())
    assert decoding > 4
    assert any(decision.acted and "flip" in decision.reason for decision in of.decisions)


def test_observing_plans_the_same_and_touches_nothing() -> None:
    instances = fleet(4, 4)
    of = balancer(instances, Mode.OBSERVE)
    decode_heavy(of, instances, 30)
    assert instances.calls == []
    assert of.last is not None
    assert of.last.flips
    assert not any(decision.acted for decision in of.decisions)


def test_silence_changes_nothing() -> None:
    instances = fleet(4, 4)
    of = balancer(instances)
    for second in range(60):
        of.tick(float(second), list(instances.states.values()))
    assert instances.calls == []


def test_a_clock_that_jumps_back_does_no_harm() -> None:
    instances = fleet(4, 4)
    of = balancer(instances)
    decode_heavy(of, instances, 3, begin=100)
    decode_heavy(of, instances, 3, begin=10)
    assert of.last is not None
    assert set(of.last.roles) == set(instances.states)
