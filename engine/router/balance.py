"""The ratio balancer, live: what arrives here and what instances say of themselves in, changes of role out."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from dataclasses import replace
from statistics import mean
from typing import Any

from engine.balancer.balancer import Balancer, Mode
from engine.balancer.costs import Costs
from engine.balancer.load import Load
from engine.balancer.manager import Flip, Manager
from engine.balancer.monitor import Monitor
from engine.balancer.planner import DEFAULTS, plan
from engine.balancer.predictor import Predictor
from engine.balancer.state import InstanceState, Phase
from engine.role import Role
from engine.router.estimate import Estimate
from engine.router.links import Links
from engine.router.registry import Instance, Registry
from engine.router.roles import RoleChanges

log = logging.getLogger(__name__)

TICK_S, ADVANCE_S = 1.0, 0.1
FEWEST = 2
"""Instances from which on there is something to balance."""

SHOWN = 50
"""Decisions, and changes of role, that are told."""


class Balance:
    """One balancer for the instances of a router, as long as they all serve the same model."""

    def __init__(
        self,
        registry: Registry,
        links: Links,
        estimate: Estimate,
        roles: RoleChanges,
        mode: str,
        lease_s: float,
        hybrids: bool = True,
    ) -> None:
        """Args:
        mode: act, observe or off.
        lease_s: after which an instance not heard of is lost.
        hybrids: whether instances may do both where splits are overloaded.
        """
        self.mode = mode
        self.monitor = Monitor(silent_after_s=lease_s)
        self._registry, self._links, self._estimate = registry, links, estimate
        self._changed_at: dict[tuple[str, int], float] = {}
        self._flips: deque[Flip] = deque(maxlen=SHOWN)
        self._balancer = Balancer(
            self.monitor,
            Predictor(estimate.costs),
            Manager(roles, on_flip=self._flipped),
            estimate.costs,
            DEFAULTS if hybrids else replace(DEFAULTS, hybrid_margin=math.inf),
            mode=Mode.OBSERVE if mode == "observe" else Mode.ACT,
            planner=plan,
        )

    def arrived(self, load: Load, again: bool) -> None:
        """A request waits for its turn. `again`: it was placed before and failed there."""
        if again:
            self.monitor.returned([load])
        else:
            self.monitor.arrived([load])

    def started(self, load: Load) -> None:
        """Its turn came."""
        self.monitor.started([load])

    def withdrawn(self, load: Load) -> None:
        """It left before."""
        self.monitor.withdrawn([load])

    async def run(self) -> None:
        """Tick until cancelled, and look after what is under way more often."""
        loop = asyncio.get_running_loop()
        due = loop.time() + TICK_S
        while True:
            await asyncio.sleep(ADVANCE_S)
            now = loop.time()
            try:
                if now >= due:
                    due = now + TICK_S
                    self.tick(now)
                elif self._balancer.manager.busy:
                    self._balancer.manager.advance(now)
            except Exception:
                # A mistake in planning must not take the router's roles with it: they stay as they are.
                log.exception("the balancer failed")

    def tick(self, now: float) -> None:
        """Look, predict, plan; in the mode `act` also do it."""
        instances = [instance for instance in self._registry if instance.alive()]
        for instance in instances:
            self.monitor.heard(instance.id, instance.epoch, instance.heard)
        if self.mode == "off" or len(instances) < FEWEST or len(self._registry.models()) != 1:
            self.monitor.close(now)
            return
        self._balancer.costs = self._costs(instances)
        self._balancer.tick(now, [self._state(instance, now) for instance in instances])

    def show(self) -> dict[str, Any]:
        """What it sees and does, as JSON."""
        last = self._balancer.last
        costs = self._balancer.costs
        return {
            "mode": self.mode,
            "roles": {i.id: i.status.role.value for i in self._registry},
            "wanted": {id: role.value for id, role in last.roles.items()} if last else {},
            "reason": last.reason if last else "fewer than two instances, or more than one model",
            "scale_hint": last.scale_hint if last else 0,
            "under_way": [
                {"id": f.id, "from": f.before.value, "to": f.after.value, "stage": f.stage.value}
                for f in self._balancer.manager.under_way
            ],
            "flips_done": self._balancer.manager.flips_done,
            "flips": [_shown(flip) for flip in self._flips],
            "decisions": [
                {"at": round(d.at, 3), "reason": d.reason, "acted": d.acted}
                for d in list(self._balancer.decisions)[-SHOWN:]
            ],
            "costs": {
                "source": costs.source,
                "text_token_s": costs.text_token_s,
                "step_s": costs.step_s,
                "bandwidth_bytes_s": costs.bandwidth_bytes_s,
            },
        }

    def _flipped(self, flip: Flip) -> None:
        self._changed_at[flip.id, flip.epoch] = flip.ended
        self._flips.append(flip)
        log.info("%s: %s -> %s: %s", flip.id, flip.before, flip.after, flip.stage)

    def _costs(self, instances: list[Instance]) -> Costs:
        """The costs given, at the pace that instances have shown, with the sizes that they have."""
        base = self._estimate.costs
        prefill, step = self._estimate.prefill_pace, self._estimate.step_pace
        speeds = [link.bandwidth.bytes_per_s for link in self._links if link.bandwidth]
        return replace(
            base,
            prefill_request_s=base.prefill_request_s * prefill,
            visual_token_s=base.visual_token_s * prefill,
            text_token_s=base.text_token_s * prefill,
            attention_s=base.attention_s * prefill,
            step_s=base.step_s * step,
            step_kv_token_s=base.step_kv_token_s * step,
            step_sequence_s=base.step_sequence_s * step,
            tpot_bound_s=base.tpot_bound_s * max(1.0, step),
            max_sequences=max(1, round(mean(i.status.max_batch_size for i in instances))),
            kv_capacity_tokens=max(1, round(mean(i.capacity_tokens for i in instances))),
            kv_bytes_per_token=max(1, max(i.status.kv_bytes_per_token for i in instances)),
            bandwidth_bytes_s=max(1.0, mean(speeds)) if speeds else base.bandwidth_bytes_s,
            source=f"{base.source}; prefill x{prefill:.3g}, decode x{step:.3g} as measured here",
        )

    def _state(self, instance: Instance, now: float) -> InstanceState:
        costs = self._balancer.costs
        step = costs.step(instance.running, instance.kv_tokens)
        left = self._estimate.mean_output / 2 * instance.running
        phase = Phase.READY
        if instance.role_wanted is not None:
            phase = Phase.SWITCHING if instance.switching else Phase.DRAINING
        elif not instance.status.health.ok or instance.status.phase != "ready":
            phase = Phase.LOST
        return InstanceState(
            id=instance.id,
            role=instance.status.role,
            epoch=instance.epoch,
            phase=phase,
            target=instance.role_wanted,
            running=instance.running,
            remaining_s=left * step / max(1, instance.running),
            drain_s=self._drain_s(instance, step),
            kv_used_tokens=instance.kv_tokens,
            changed_at=self._changed_at.get((instance.id, instance.epoch), float("-inf")),
        )

    def _drain_s(self, instance: Instance, step: float) -> float:
        """Seconds until what its present role does has ended; KV to be pulled is kept in any."""
        prefill = 0.0 if instance.status.role is Role.DECODE else instance.prefill_s
        decode = 0.0 if instance.status.role is Role.PREFILL or not instance.running else self._estimate.mean_output
        return prefill + decode * step


def _shown(flip: Flip) -> dict[str, Any]:
    """A change of role that is over: when it began, and the seconds of its drain and of its switch."""
    drained = flip.ended if math.isnan(flip.drained) else flip.drained
    return {
        "at": round(flip.started, 3),
        "id": flip.id,
        "from": flip.before.value,
        "to": flip.after.value,
        "stage": flip.stage.value,
        "drain_s": round(drained - flip.started, 3),
        "switch_s": round(flip.ended - drained, 3),
    }
