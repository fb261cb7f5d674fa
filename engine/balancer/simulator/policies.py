"""Who decides on roles: the balancer, and what it is compared with. All but the mixed pool flip by the manager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING

from engine.balancer.balancer import Balancer, Planner
from engine.balancer.costs import Costs
from engine.balancer.manager import Flip, Manager
from engine.balancer.planner import DEFAULTS, PlannerSettings, best_split, demand_of, plan, roles_for
from engine.balancer.predictor import Predictor
from engine.balancer.state import Forecast, Phase, Plan, PoolState
from engine.role import Role

if TYPE_CHECKING:
    from engine.balancer.simulator.cluster import Cluster

TICK_S = 1.0


class Fixed:
    """Leaves roles as they are: a static split, or all instances hybrid (colocated)."""

    def __init__(self, name: str = "static") -> None:
        self.name, self.interval_s = name, TICK_S

    def start(self, cluster: Cluster) -> None:
        """Nothing to prepare."""

    def tick(self, now: float) -> None:
        """Nothing to decide."""

    def moved(self, now: float) -> None:
        """Nothing under way."""


class Balanced:
    """The production balancer, with the planner and the settings given."""

    def __init__(
        self,
        name: str = "ours",
        settings: PlannerSettings = DEFAULTS,
        planner: Planner = plan,
        interval_s: float = TICK_S,
    ) -> None:
        self.name, self.interval_s = name, interval_s
        self._settings, self._planner = settings, planner

    def start(self, cluster: Cluster) -> None:
        """Wire the balancer to the cluster."""
        self._cluster = cluster
        outcome = cluster.outcome

        def note(flip: Flip) -> None:
            # Those taken back count too: they drained an instance for nothing.
            outcome.flips += 1

        manager = Manager(cluster, on_flip=note)
        self.balancer = Balancer(
            cluster.monitor,
            Predictor(cluster.costs),
            manager,
            cluster.costs,
            self._settings,
            planner=self._planner,
        )

    def tick(self, now: float) -> None:
        """One round of the balancer."""
        cluster = self._cluster
        wanted = self.balancer.tick(now, cluster.states(), cluster.waiting_decode())
        decisions = self.balancer.decisions
        if decisions and decisions[-1].at == now and decisions[-1].acted:
            cluster.outcome.decisions.append((now, wanted.reason))
        note_schedule(cluster, now)

    def moved(self, now: float) -> None:
        """An instance drained or switched."""
        self.balancer.manager.advance(now)


def ours(settings: PlannerSettings = DEFAULTS, interval_s: float = TICK_S) -> Balanced:
    """The balancer as it runs in production."""
    return Balanced("ours", settings, interval_s=interval_s)


def matching() -> Balanced:
    """Throughput matching without hysteresis: at every tick the split that carries most of the demand of then."""

    def match(state: PoolState, forecast: Forecast, costs: Costs, settings: PlannerSettings) -> Plan:
        present = [i for i in state.instances if i.phase is not Phase.LOST]
        have = {i.id: i.target or i.role for i in present}
        wanted = best_split(present, demand_of(state, forecast, costs, settings), settings.minimum)
        flips = tuple((name, role) for name, role in wanted.items() if have[name] is not role)
        return Plan(wanted, "match", flips=flips)

    return Balanced("matching", replace(DEFAULTS, horizon_s=10.0), match)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Of the load-based planner that NVIDIA Dynamo documents (docs/architecture/load_planner.md, v0.3).

    Attributes:
        interval_s: seconds between adjustments. The shortest of its defaults over the versions (10, 30, 180).
        queue_up, queue_down: requests in the prefill queue, mean over the interval.
        kv_up, kv_down: share of the KV cache in use, mean over interval and instances.
        waiting_kv: KV that its code reckons for each request waiting for decode.
        grace: adjustments after an addition to decode in which decode is not reduced.
        trend: adjustments ahead in which the queue must stay over the threshold, by its trend, for an addition.
    """

    interval_s: float = 10.0
    queue_up: float = 5.0
    queue_down: float = 0.2
    kv_up: float = 0.9
    kv_down: float = 0.5
    waiting_kv: float = 0.02
    grace: int = 3
    trend: int = 3


class ThresholdPlanner:
    """Moves one instance at a time between pools of fixed total size, by thresholds.

    More generous than the original, which on a full budget adds to one pool only after the other fell below its
    lower threshold: here one instance moves when its pool is not pressed itself. And a decode instance counts as
    full when its slots are, since with a small model slots run out long before KV memory does.
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._thresholds = thresholds or Thresholds()
        self._queue: list[float] = []
        self._kv: list[float] = []
        self._adjusted_at = 0.0
        self._grace = 0

    def __call__(self, state: PoolState, forecast: Forecast, costs: Costs, settings: PlannerSettings) -> Plan:
        """Collect a measurement; at the end of an interval decide."""
        limits = self._thresholds
        present = [i for i in state.instances if i.phase is not Phase.LOST]
        roles = {i.id: i.target or i.role for i in present}
        decode = [i for i in present if i.role is Role.DECODE]
        waiting = state.waiting_decode.requests
        use = [max(i.kv_used_tokens / costs.kv_capacity_tokens, i.running / costs.max_sequences) for i in decode]
        self._queue.append(state.waiting_prefill.requests)
        self._kv.append((mean(use) if use else 0.0) + limits.waiting_kv * waiting)
        if state.now - self._adjusted_at < limits.interval_s:
            return Plan(roles, "collecting")
        queue, kv = mean(self._queue), mean(self._kv)
        ahead = self._queue[-1] + limits.trend * (self._queue[-1] - self._queue[0])
        self._queue, self._kv, self._adjusted_at = [], [], state.now
        prefill = sum(role is Role.PREFILL for role in roles.values())
        grace, self._grace = self._grace, max(0, self._grace - 1)
        if any(i.phase is not Phase.READY for i in present):
            return Plan(roles, "changing")
        step = 0
        if queue > limits.queue_up and ahead > limits.queue_up and kv < limits.kv_up and not grace:
            step = 1
        elif (kv > limits.kv_up and queue < limits.queue_up) or (queue < limits.queue_down and kv > limits.kv_down):
            step = -1
        if not 1 <= prefill + step <= len(present) - 1:
            step = 0
        if step < 0:
            self._grace = limits.grace
        wanted = roles_for(state, prefill + step)
        flips = tuple((name, role) for name, role in wanted.items() if roles[name] is not role)
        return Plan(wanted, f"queue {queue:.1f}, kv {kv:.2f}: {step:+d}", flips=flips if step else ())


def threshold() -> Balanced:
    """An autoscaler by thresholds, after NVIDIA Dynamo's load-based planner."""
    return Balanced("threshold", planner=ThresholdPlanner())


class Scheduled:
    """Follows a schedule of prefill pool sizes: what the oracle tries out."""

    def __init__(self, schedule: Sequence[tuple[float, int]], name: str = "schedule") -> None:
        self.name, self.interval_s = name, TICK_S
        self._schedule = list(schedule)

    def start(self, cluster: Cluster) -> None:
        """Nothing is decided on line, so there is no balancer, only a manager."""
        self._cluster = cluster

        def note(flip: Flip) -> None:
            cluster.outcome.flips += 1

        self._manager = Manager(cluster, on_flip=note)

    def tick(self, now: float) -> None:
        """Begin what is due."""
        due = [count for at, count in self._schedule if at <= now + 1e-9]
        cluster = self._cluster
        cluster.monitor.close(now)
        self._manager.advance(now)
        if due:
            state = PoolState(now, cluster.states())
            wanted = roles_for(state, due[-1])
            have = {i.id: i.target or i.role for i in state.instances}
            flips = tuple((n, role) for n, role in wanted.items() if have[n] is not role)
            if flips:
                due_plan = Plan(wanted, "schedule", flips=flips)
                self._manager.cancel(due_plan, now)
                self._manager.start(due_plan, state.instances, now)
        note_schedule(cluster, now)

    def moved(self, now: float) -> None:
        """An instance drained or switched."""
        self._manager.advance(now)


class MixedPool:
    """After Splitwise: a machine of the other pool joins a mixed pool, where both phases run, while its own pool
    has too much waiting; it goes home when nothing foreign is left. Nothing drains, nothing switches.
    """

    def __init__(self, waiting_s: float = 1.0) -> None:
        """Args:
        waiting_s: seconds of queueing in a pool beyond which it borrows a machine.
        """
        self.name, self.interval_s = "mixed pool", TICK_S / 4
        self._waiting_s = waiting_s

    def start(self, cluster: Cluster) -> None:
        """Remember where every machine belongs."""
        self._cluster = cluster
        self._home = {d.id: d.role for d in cluster.devices}

    def tick(self, now: float) -> None:
        """Borrow one machine at most for each pool, and send home those that are done."""
        cluster = self._cluster
        cluster.monitor.close(now)
        costs = cluster.costs
        state = cluster.monitor.state(now, ())
        prefillers = sum(d.accepts_prefill for d in cluster.devices)
        decoders = sum(d.accepts_decode for d in cluster.devices)
        wait_prefill = costs.prefill_s(state.waiting_prefill) / max(1, prefillers)
        wait_decode = costs.decode_s(cluster.waiting_decode()) / max(1, decoders)
        for home, wait in ((Role.PREFILL, wait_prefill), (Role.DECODE, wait_decode)):
            lenders = [d for d in cluster.devices if d.role is self._home[d.id] and d.role is not home and d.alive]
            if wait > self._waiting_s and lenders:
                cluster.become(min(lenders, key=lambda d: (d.running, len(d.batch), d.id)), Role.HYBRID)
            elif wait < self._waiting_s / 4:
                self._send_home(home)

    def _send_home(self, pressed: Role) -> None:
        for device in self._cluster.devices:
            home = self._home[device.id]
            foreign = device.running if home is Role.PREFILL else len(device.batch)
            if device.role is Role.HYBRID and home is not pressed and not foreign:
                self._cluster.become(device, home)

    def moved(self, now: float) -> None:
        """Nothing is ever under way."""


def note_schedule(cluster: Cluster, now: float) -> None:
    """Keep the size of the prefill pool that is aimed at, whenever it changes: what an oracle can start from."""
    size = sum(d.target is Role.PREFILL for d in cluster.devices)
    schedule = cluster.outcome.schedule
    if not schedule or schedule[-1][1] != size:
        schedule.append((now, size))
