"""The loop: once a tick, look, predict, plan, and let the manager do it. The same in a router and in simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from engine.balancer.costs import Costs
from engine.balancer.load import NOTHING, Load
from engine.balancer.manager import Manager
from engine.balancer.monitor import Monitor
from engine.balancer.planner import DEFAULTS, PlannerSettings, plan
from engine.balancer.predictor import Predictor
from engine.balancer.state import Forecast, InstanceState, Plan, PoolState

Planner = Callable[[PoolState, Forecast, Costs, PlannerSettings], Plan]


class Mode(StrEnum):
    """What plans are for."""

    ACT = "act"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the log.

    Attributes:
        at: seconds on the balancer's clock.
        reason: the plan's line.
        acted: whether flips were begun for it.
    """

    at: float
    reason: str
    acted: bool


class Balancer:
    """Ties the parts together. The caller owns clock and instances and calls `tick` at a steady pace."""

    def __init__(
        self,
        monitor: Monitor,
        predictor: Predictor,
        manager: Manager,
        costs: Costs,
        settings: PlannerSettings = DEFAULTS,
        mode: Mode = Mode.ACT,
        planner: Planner = plan,
    ) -> None:
        self.monitor, self.predictor, self.manager = monitor, predictor, manager
        self.costs, self.settings, self.mode = costs, settings, mode
        self.decisions: deque[Decision] = deque(maxlen=1000)
        self.last: Plan | None = None
        self._planner = planner

    def tick(self, now: float, instances: Iterable[InstanceState], waiting_decode: Load = NOTHING) -> Plan:
        """Plan, and begin or take back flips accordingly. Answers the plan."""
        self.predictor.observe(*self.monitor.close(now))
        state = self.monitor.state(now, instances, waiting_decode, self.manager.changed_at)
        forecast = self.predictor.forecast()
        wanted = self._planner(state, forecast, self.costs, self.settings)
        acted = False
        if self.mode is Mode.ACT:
            self.manager.cancel(wanted, now)
            self.manager.advance(now)
            if wanted.flips:
                acted = self.manager.start(wanted, state.instances, now)
        if acted or self.last is None or bool(wanted.flips) != bool(self.last.flips):
            self.decisions.append(Decision(now, wanted.reason, acted))
        self.last = wanted
        return wanted
