"""Changes of role as the balancer's manager asks for them: the router stops placing, then the instance switches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from engine.balancer.manager import InstanceGone
from engine.pools.messages import RoleChange
from engine.role import Role
from engine.router.errors import EngineFailed, InstanceLost
from engine.router.instance_client import InstanceClient
from engine.router.registry import Instance, Registry

DRAIN_S = 5.0
"""Seconds for what an instance may still have although the router counts nothing there."""

SWITCH_S = 30.0
"""Seconds that a switch with its canary may take."""


@dataclass(slots=True)
class _Switch:
    role: Role
    task: asyncio.Task[None]
    failed: bool = False
    gone: bool = False


class RoleChanges:
    """`engine.balancer.manager.Instances` over the registered instances. Every call returns at once."""

    def __init__(self, registry: Registry, client: InstanceClient, changed: Callable[[], None]) -> None:
        self._registry = registry
        self._client = client
        self._changed = changed
        self._switches: dict[tuple[str, int], _Switch] = {}

    def drain(self, id: str, epoch: int, target: Role) -> None:
        """Place nothing more there for its old role."""
        self._find(id, epoch).role_wanted = target
        self._changed()

    def is_drained(self, id: str, epoch: int) -> bool:
        """Whether nothing of this router's is there any more that the role it is to have does not do. KV that waits to
        be pulled is kept in any role.
        """
        instance = self._find(id, epoch)
        if instance.role_wanted is Role.HYBRID:
            return True
        return instance.prefills == 0 if instance.role_wanted is Role.DECODE else instance.running == 0

    def switch(self, id: str, epoch: int, role: Role) -> None:
        """Let the instance change its role and prove itself."""
        instance = self._find(id, epoch)
        known = self._switches.get((id, epoch))
        if known and known.role is role and not known.failed:
            return
        instance.switching = True
        self._switches[id, epoch] = _Switch(role, asyncio.create_task(self._switch(instance, role)))

    def is_switched(self, id: str, epoch: int) -> bool | None:
        """True: done; False: it failed; None: under way."""
        instance = self._find(id, epoch)
        known = self._switches.get((id, epoch))
        if known is None or not known.task.done():
            return None
        if known.gone:
            raise InstanceGone(f"{id} did not answer")
        return not known.failed and instance.status.role is known.role

    def resume(self, id: str, epoch: int) -> None:
        """Place requests there again, by the role that it has."""
        instance = self._find(id, epoch)
        self._switches.pop((id, epoch), None)
        instance.role_wanted, instance.switching = None, False
        self._changed()

    async def close(self) -> None:
        """Wait for no switch any more; instances finish theirs by themselves."""
        tasks = [switch.task for switch in self._switches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _switch(self, instance: Instance, role: Role) -> None:
        change = RoleChange(role=role, epoch=instance.epoch, drain_s=DRAIN_S)
        try:
            status = await self._client.change_role(instance, change, DRAIN_S + SWITCH_S)
            instance.describe(status, instance.heard)
        except EngineFailed:
            self._switches[instance.id, instance.epoch].failed = True
        except InstanceLost:
            self._switches[instance.id, instance.epoch].gone = True

    def _find(self, id: str, epoch: int) -> Instance:
        instance = self._registry.get(id)
        if instance is None or instance.lost or instance.epoch != epoch:
            raise InstanceGone(f"{id} is gone, or another incarnation by now")
        return instance
