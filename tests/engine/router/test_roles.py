"""Changes of role as the balancer's manager asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.balancer.manager import InstanceGone
from engine.pools.messages import InstanceStatus, RoleChange
from engine.role import Role
from engine.router.instance_client import InstanceClient
from engine.router.registry import Instance, Registry
from engine.router.roles import RoleChanges
from tests.engine.router.instances import status


class Obedient(InstanceClient):
    """Changes roles without a network."""

    def __init__(self) -> None:
        super().__init__(None)

    async def change_role(self, instance: Instance, change: RoleChange, seconds: float) -> InstanceStatus:
        return status(instance.id, change.role.value)


def run(test: Callable[[RoleChanges, Instance, Instance], Awaitable[Any]]) -> None:
    async def prepared() -> None:
        registry = Registry(10.0, lambda: None)
        prefill, decode = registry.heard(status("p0", "prefill")), registry.heard(status("d0", "decode"))
        roles = RoleChanges(registry, Obedient(), lambda: None)
        await test(roles, prefill, decode)
        await roles.close()

    asyncio.run(prepared())


def test_a_change_to_prefill_waits_for_answers_and_not_for_prompts() -> None:
    async def test(roles: RoleChanges, _: Instance, decode: Instance) -> None:
        decode.running = decode.prefills = decode.waiting_pull = 1
        roles.drain("d0", 1, Role.PREFILL)
        assert not roles.is_drained("d0", 1)
        decode.running = 0
        assert roles.is_drained("d0", 1)

    run(test)


def test_a_change_to_decode_waits_for_prompts_and_not_for_answers() -> None:
    async def test(roles: RoleChanges, prefill: Instance, _: Instance) -> None:
        prefill.running = prefill.prefills = prefill.waiting_pull = 1
        roles.drain("p0", 1, Role.DECODE)
        assert not roles.is_drained("p0", 1)
        prefill.prefills = 0
        assert roles.is_drained("p0", 1)

    run(test)


def test_a_hybrid_does_all_that_was_done_before_so_nothing_is_waited_for() -> None:
    async def test(roles: RoleChanges, prefill: Instance, _: Instance) -> None:
        prefill.running = prefill.prefills = 1
        roles.drain("p0", 1, Role.HYBRID)
        assert roles.is_drained("p0", 1)

    run(test)


def test_a_change_ends_with_the_role_and_requests_are_taken_again() -> None:
    async def test(roles: RoleChanges, _: Instance, decode: Instance) -> None:
        now = asyncio.get_running_loop().time()
        roles.drain("d0", 1, Role.PREFILL)
        assert decode.joins(now) and not decode.usable(now)
        roles.switch("d0", 1, Role.PREFILL)
        assert not decode.joins(now) and not decode.usable(now)
        assert roles.is_switched("d0", 1) is None
        await asyncio.sleep(0.01)
        assert roles.is_switched("d0", 1) is True
        roles.resume("d0", 1)
        assert decode.usable(now) and decode.role is Role.PREFILL

    run(test)


def test_a_change_that_is_taken_back_leaves_the_old_role() -> None:
    async def test(roles: RoleChanges, _: Instance, decode: Instance) -> None:
        now = asyncio.get_running_loop().time()
        roles.drain("d0", 1, Role.PREFILL)
        roles.resume("d0", 1)
        assert decode.usable(now) and decode.role is Role.DECODE

    run(test)


def test_another_incarnation_is_gone() -> None:
    async def test(roles: RoleChanges, _: Instance, __: Instance) -> None:
        with pytest.raises(InstanceGone):
            roles.drain("d0", 2, Role.PREFILL)

    run(test)
