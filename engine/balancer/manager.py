"""Carries out a plan: each flip is a transaction that drains, switches and verifies, or is rolled back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.balancer.state import InstanceState, Phase, Plan
from engine.role import Role


class InstanceGone(Exception):
    """The instance no longer answers, or is another process by now (its epoch grew)."""


class Instances(Protocol):
    """What the manager can ask of instances. Every call returns at once and may raise `InstanceGone`.

    Calls are idempotent: repeating one whose effect is there already changes nothing.
    """

    def drain(self, id: str, epoch: int, target: Role) -> None:
        """Admit nothing more that the role `target` would not do; finish what is there.

        An engine that can do both meanwhile already admits what the target role does.
        """

    def is_drained(self, id: str, epoch: int) -> bool:
        """Whether nothing is left that the target role would not do."""

    def switch(self, id: str, epoch: int, role: Role) -> None:
        """Begin to change the role of a drained instance. It admits nothing until it is resumed."""

    def is_switched(self, id: str, epoch: int) -> bool | None:
        """True: the new role is there and its canary answered right; False: it failed; None: under way."""

    def resume(self, id: str, epoch: int) -> None:
        """Admit under the role that it has."""


class Stage(StrEnum):
    """Where one flip is."""

    DRAINING = "draining"
    SWITCHING = "switching"
    ROLLING_BACK = "rolling back"
    DONE = "done"
    UNDONE = "undone"
    LOST = "lost"


@dataclass(slots=True)
class Flip:
    """One instance on its way from one role to another.

    Attributes:
        started, drained, ended: when, on the manager's clock; NaN while it has not come to that.
    """

    id: str
    epoch: int
    before: Role
    after: Role
    started: float
    stage: Stage = Stage.DRAINING
    drained: float = math.nan
    ended: float = math.nan

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.stage in (Stage.DONE, Stage.UNDONE, Stage.LOST)


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Attributes:
    minimum: instances of a role that stay ready, whatever a plan says.
    parallel_share: share of the instances that change at the same time, at most.
    parallel_least: instances that may, however few there are: from one extreme of four to the other are two changes,
        and what the first one drains may take long.
    drain_timeout_s: a drain that takes longer is rolled back.
    """

    minimum: int = 1
    parallel_share: float = 0.25
    parallel_least: int = 2
    drain_timeout_s: float = 60.0


class Manager:
    """A bounded number of flips at a time; each ends done, undone or lost, never in between."""

    def __init__(
        self,
        instances: Instances,
        settings: ManagerSettings | None = None,
        on_flip: Callable[[Flip], None] | None = None,
    ) -> None:
        self._instances = instances
        self._settings = settings or ManagerSettings()
        self._on_flip = on_flip
        self.under_way: list[Flip] = []
        self.flips_done = 0
        self.changed_at = -math.inf

    @property
    def busy(self) -> bool:
        """Whether any flip is under way."""
        return bool(self.under_way)

    def recover(self, states: Iterable[InstanceState]) -> None:
        """After the manager's own restart: whatever it left half way is admitted again under the role it has."""
        for state in states:
            if state.phase in (Phase.DRAINING, Phase.SWITCHING):
                try:
                    self._instances.resume(state.id, state.epoch)
                except InstanceGone:
                    continue

    def start(self, plan: Plan, states: Iterable[InstanceState], now: float) -> bool:
        """Begin the flips of `plan`, as many as may be under way together. Answers whether any was begun."""
        by_id = {state.id: state for state in states}
        room = max(self._settings.parallel_least, math.ceil(len(by_id) * self._settings.parallel_share))
        ready = {role: sum(s.phase is Phase.READY and s.role is role for s in by_id.values()) for role in Role}
        ready_hybrids = ready[Role.HYBRID]
        begun: list[Flip] = []
        for id, after in sorted(plan.flips, key=lambda flip: _cheapest_first(by_id, flip[0])):
            state = by_id.get(id)
            if state is None or state.phase is not Phase.READY or state.role is after:
                continue
            left = ready[state.role] - 1 + (ready_hybrids if state.role is not Role.HYBRID else 0)
            if len(self.under_way) + len(begun) >= room or (
                left < self._settings.minimum and after is not Role.HYBRID and state.role is not Role.HYBRID
            ):
                continue
            ready[state.role] -= 1
            begun.append(Flip(id, state.epoch, state.role, after, now))
        self.under_way += begun
        for flip in begun:
            self._guarded(flip, now, self._begin)
        self.advance(now)
        return bool(begun)

    def cancel(self, plan: Plan, now: float) -> None:
        """Take back the drains that `plan` no longer wants. What has begun to switch goes on."""
        for flip in self.under_way:
            if flip.stage is Stage.DRAINING and plan.roles.get(flip.id) is flip.before:
                self._undo(flip, now)
        self._close()

    def advance(self, now: float) -> None:
        """Move every flip as far as it goes now. Call it again and again, at least once a tick."""
        for flip in self.under_way:
            self._guarded(flip, now, self._step)
        self._close()

    def _begin(self, flip: Flip, now: float) -> None:
        self._instances.drain(flip.id, flip.epoch, flip.after)

    def _step(self, flip: Flip, now: float) -> None:
        if flip.stage is Stage.DRAINING:
            if self._instances.is_drained(flip.id, flip.epoch):
                self._instances.switch(flip.id, flip.epoch, flip.after)
                flip.stage, flip.drained = Stage.SWITCHING, now
            elif now - flip.started > self._settings.drain_timeout_s:
                self._undo(flip, now)
        if flip.stage in (Stage.SWITCHING, Stage.ROLLING_BACK):
            switched = self._instances.is_switched(flip.id, flip.epoch)
            if switched:
                self._instances.resume(flip.id, flip.epoch)
                self._end(flip, Stage.DONE if flip.stage is Stage.SWITCHING else Stage.UNDONE, now)
            elif switched is False and flip.stage is Stage.SWITCHING:
                self._instances.switch(flip.id, flip.epoch, flip.before)
                flip.stage = Stage.ROLLING_BACK
            elif switched is False:
                # Neither role works: it admits nothing until its supervisor starts it anew.
                self._end(flip, Stage.LOST, now)

    def _undo(self, flip: Flip, now: float) -> None:
        self._instances.resume(flip.id, flip.epoch)
        self._end(flip, Stage.UNDONE, now)

    def _guarded(self, flip: Flip, now: float, action: Callable[[Flip, float], None]) -> None:
        if flip.over:
            return
        try:
            action(flip, now)
        except InstanceGone:
            self._end(flip, Stage.LOST, now)

    def _end(self, flip: Flip, stage: Stage, now: float) -> None:
        flip.stage, flip.ended = stage, now
        if stage is Stage.DONE:
            self.flips_done += 1
            self.changed_at = now
        if self._on_flip:
            self._on_flip(flip)

    def _close(self) -> None:
        self.under_way = [flip for flip in self.under_way if not flip.over]


def _cheapest_first(by_id: dict[str, InstanceState], id: str) -> tuple[float, str]:
    state = by_id.get(id)
    return (state.drain_s if state else math.inf, id)
