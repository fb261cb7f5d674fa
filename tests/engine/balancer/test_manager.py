"""Flips are atomic: whatever instances do, each ends in one role, admitted, or is given up as lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.balancer.manager import Flip, InstanceGone, Manager, ManagerSettings, Stage
from engine.balancer.state import InstanceState, Phase, Plan
from engine.role import Role


@dataclass
class Fleet:
    """Instances in memory that drain, switch, fail and die when told to."""

    states: dict[str, InstanceState]
    drained: set[str] = field(default_factory=set)
    broken: set[tuple[str, Role]] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def _check(self, id: str, epoch: int) -> None:
        if id in self.dead or self.states[id].epoch != epoch:
            raise InstanceGone(id)

    def drain(self, id: str, epoch: int, target: Role) -> None:
        self._check(id, epoch)
        self.calls.append(f"drain {id}")
        self.states[id] = replace(self.states[id], phase=Phase.DRAINING, target=target)

    def is_drained(self, id: str, epoch: int) -> bool:
        self._check(id, epoch)
        return id in self.drained

    def switch(self, id: str, epoch: int, role: Role) -> None:
        self._check(id, epoch)
        self.calls.append(f"switch {id} {role}")
        self.states[id] = replace(self.states[id], phase=Phase.SWITCHING, target=role)

    def is_switched(self, id: str, epoch: int) -> bool | None:
        self._check(id, epoch)
        target = self.states[id].target
        assert target is not None
        if (id, target) in self.broken:
            return False
        self.states[id] = replace(self.states[id], role=target)
        return True

    def resume(self, id: str, epoch: int) -> None:
        self._check(id, epoch)
        self.states[id] = replace(self.states[id], phase=Phase.READY, target=None)


def fleet(prefill: int, decode: int) -> Fleet:
    roles = [Role.PREFILL] * prefill + [Role.DECODE] * decode
    return Fleet({f"i{n}": InstanceState(f"i{n}", role) for n, role in enumerate(roles)})


def plan_of(instances: Fleet, **flips: Role) -> Plan:
    roles = {name: state.role for name, state in instances.states.items()} | flips
    return Plan(roles, "test", flips=tuple(flips.items()))


def test_a_flip_drains_switches_and_is_admitted_in_that_order() -> None:
    instances = fleet(2, 2)
    manager = Manager(instances)
    assert manager.start(plan_of(instances, i2=Role.PREFILL), instances.states.values(), 0.0)
    manager.advance(1.0)
    assert instances.calls == ["drain i2"]
    instances.drained.add("i2")
    manager.advance(2.0)
    assert instances.calls == ["drain i2", "switch i2 prefill"]
    assert instances.states["i2"] == InstanceState("i2", Role.PREFILL)
    assert not manager.busy
    assert (manager.flips_done, manager.changed_at) == (1, 2.0)


def test_a_role_that_does_not_come_up_is_rolled_back() -> None:
    instances = fleet(2, 2)
    instances.drained.add("i2")
    instances.broken.add(("i2", Role.PREFILL))
    ended: list[Flip] = []
    manager = Manager(instances, on_flip=ended.append)
    manager.start(plan_of(instances, i2=Role.PREFILL), instances.states.values(), 0.0)
    manager.advance(1.0)
    assert instances.states["i2"] == InstanceState("i2", Role.DECODE)
    assert [flip.stage for flip in ended] == [Stage.UNDONE]
    assert manager.flips_done == 0


def test_a_drain_that_does_not_end_is_taken_back() -> None:
    instances = fleet(2, 2)
    manager = Manager(instances, ManagerSettings(drain_timeout_s=10.0))
    manager.start(plan_of(instances, i3=Role.PREFILL), instances.states.values(), 0.0)
    manager.advance(11.0)
    assert instances.states["i3"] == InstanceState("i3", Role.DECODE)
    assert not manager.busy


def test_a_drain_that_is_no_longer_wanted_is_taken_back_at_once() -> None:
    instances = fleet(2, 2)
    manager = Manager(instances)
    manager.start(plan_of(instances, i3=Role.PREFILL), instances.states.values(), 0.0)
    manager.cancel(plan_of(instances), 1.0)
    assert instances.states["i3"].phase is Phase.READY
    assert not manager.busy


def test_an_instance_that_returned_with_a_new_epoch_is_left_alone() -> None:
    instances = fleet(2, 2)
    manager = Manager(instances)
    manager.start(plan_of(instances, i3=Role.PREFILL), instances.states.values(), 0.0)
    instances.states["i3"] = InstanceState("i3", Role.DECODE, epoch=1)
    instances.drained.add("i3")
    manager.advance(1.0)
    assert instances.states["i3"] == InstanceState("i3", Role.DECODE, epoch=1)
    assert not manager.busy


def test_the_last_instance_of_a_role_is_never_given_up() -> None:
    instances = fleet(1, 3)
    manager = Manager(instances)
    assert not manager.start(plan_of(instances, i0=Role.DECODE), instances.states.values(), 0.0)


def test_only_a_share_changes_at_the_same_time_those_empty_soonest_first() -> None:
    instances = fleet(2, 6)
    for n, seconds in enumerate((0, 0, 9, 1, 8, 2, 7, 6)):
        instances.states[f"i{n}"] = replace(instances.states[f"i{n}"], drain_s=float(seconds))
    manager = Manager(instances, ManagerSettings(parallel_share=0.25))
    wanted = plan_of(instances, i2=Role.PREFILL, i3=Role.PREFILL, i4=Role.PREFILL, i5=Role.PREFILL)
    manager.start(wanted, instances.states.values(), 0.0)
    assert instances.calls == ["drain i3", "drain i5"]


def test_two_of_four_may_change_at_the_same_time() -> None:
    instances = fleet(1, 3)
    manager = Manager(instances)
    assert manager.start(plan_of(instances, i1=Role.PREFILL, i2=Role.PREFILL), instances.states.values(), 0.0)
    assert instances.calls == ["drain i1", "drain i2"]


def test_a_restarted_manager_admits_what_its_predecessor_left_half_way() -> None:
    instances = fleet(2, 2)
    Manager(instances).start(plan_of(instances, i2=Role.PREFILL), instances.states.values(), 0.0)
    successor = Manager(instances)
    successor.recover(list(instances.states.values()))
    successor.recover(list(instances.states.values()))
    assert all(state.phase is Phase.READY for state in instances.states.values())


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_whatever_happens_no_role_dies_out_and_nothing_stays_half_way(data: st.DataObject) -> None:
    instances = fleet(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
    names = sorted(instances.states)
    for name in data.draw(st.lists(st.sampled_from(names))):
        instances.broken.add((name, data.draw(st.sampled_from([Role.PREFILL, Role.DECODE]))))
    manager = Manager(instances, ManagerSettings(drain_timeout_s=5.0))
    now = 0.0
    for _ in range(data.draw(st.integers(1, 8))):
        flips = {
            name: data.draw(st.sampled_from([Role.PREFILL, Role.DECODE]))
            for name in data.draw(st.lists(st.sampled_from(names), unique=True))
        }
        manager.start(plan_of(instances, **flips), instances.states.values(), now)
        ready = [s.role for s in instances.states.values() if s.phase is Phase.READY]
        assert set(ready) == {Role.PREFILL, Role.DECODE} or manager.busy or instances.broken
        if data.draw(st.booleans()):
            instances.drained |= set(names)
        now += data.draw(st.floats(0.1, 3.0))
        manager.advance(now)
        instances.drained.clear()
    manager.advance(now + 100.0)
    manager.advance(now + 101.0)
    assert not manager.busy
