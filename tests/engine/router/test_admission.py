"""Who waits, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.role import Role
from engine.router.admission import Admission
from engine.router.errors import DeadlineExceeded, NoInstance, QueueFull
from engine.router.placement import Mode, Placement
from engine.router.registry import Instance
from engine.router.ticket import Ticket
from tests.engine.router.instances import status, ticket


class Gate:
    """An instance with a number of places that the test opens and closes."""

    def __init__(self, limit: int = 100, instance_wait_s: float = 60.0) -> None:
        self.instance = Instance(status("h"), 0.0)
        self.places = 0
        self.served = True
        self.order: list[str] = []
        self.admission = Admission(limit, instance_wait_s, self.place, lambda model, now: self.served)

    def place(self, one: Ticket, now: float) -> Placement | None:
        if self.places <= 0:
            return None
        self.places -= 1
        self.order.append(one.request.request_id)
        return Placement(one, self.instance, self.instance, Mode.HYBRID, 0.0).begin()

    async def wait(self, *tickets: Ticket) -> list[asyncio.Task[Placement]]:
        tasks = [asyncio.create_task(self.admission.turn(one)) for one in tickets]
        await asyncio.sleep(0)
        return tasks

    async def let_all(self, tasks: list[asyncio.Task[Placement]]) -> list[str]:
        self.places = len(tasks)
        self.admission.pump()
        await asyncio.gather(*tasks)
        return self.order


def run(test: Callable[[float], Awaitable[Any]]) -> None:
    async def main() -> None:
        await test(asyncio.get_running_loop().time())

    asyncio.run(main())


def test_first_come_first_served() -> None:
    async def test(now: float) -> None:
        gate = Gate()
        tasks = await gate.wait(*(ticket(str(n), now=now + n * 0.01) for n in range(5)))
        assert await gate.let_all(tasks) == ["0", "1", "2", "3", "4"]

    run(test)


def test_a_giant_prompt_does_not_block_small_ones() -> None:
    async def test(now: float) -> None:
        gate = Gate()
        tasks = await gate.wait(ticket("giant", 30_000, now=now), *(ticket(str(n), now=now + 1) for n in range(3)))
        assert (await gate.let_all(tasks))[-1] == "giant"

    run(test)


def test_a_giant_prompt_is_not_overtaken_for_ever() -> None:
    async def test(now: float) -> None:
        gate = Gate()
        later = [ticket(str(n), now=now + 10 * n, caller=str(n)) for n in range(30)]
        tasks = await gate.wait(ticket("giant", 30_000, now=now), *later)
        order = await gate.let_all(tasks)
        # 30 s of prefill are worth 120 s of waiting: who comes after that comes after it.
        assert 10 <= order.index("giant") <= 13

    run(test)


def test_priority_comes_first_but_not_for_ever() -> None:
    async def test(now: float) -> None:
        gate = Gate()
        tasks = await gate.wait(
            ticket("old and low", now=now - 100, deadline=now + 60, priority=5),
            ticket("low", now=now, priority=5),
            ticket("normal", now=now),
            ticket("urgent", now=now, priority=-1),
        )
        assert await gate.let_all(tasks) == ["old and low", "urgent", "normal", "low"]

    run(test)


def test_callers_take_turns() -> None:
    async def test(now: float) -> None:
        gate = Gate()
        flood = [ticket(f"flood {n}", 1000, now=now, caller="many") for n in range(10)]
        tasks = await gate.wait(*flood, ticket("one", 1000, now=now + 0.1, caller="few"))
        assert (await gate.let_all(tasks)).index("one") == 1

    run(test)


def test_more_than_may_wait_are_refused_with_a_time() -> None:
    async def test(now: float) -> None:
        gate = Gate(limit=2)
        tasks = await gate.wait(ticket("a", now=now), ticket("b", now=now))
        with pytest.raises(QueueFull) as refused:
            await gate.admission.turn(ticket("c", now=now))
        assert refused.value.retry_after_s is not None and refused.value.retry_after_s >= 1
        await gate.let_all(tasks)

    run(test)


def test_a_deadline_in_the_queue_is_kept() -> None:
    async def test(now: float) -> None:
        gate = Gate()
        with pytest.raises(DeadlineExceeded):
            await gate.admission.turn(ticket(now=now, deadline=now + 0.05))
        assert len(gate.admission) == 0

    run(test)


def test_who_leaves_as_its_turn_comes_gives_its_places_back() -> None:
    async def test(now: float) -> None:
        gate = Gate()
        (task,) = await gate.wait(ticket(now=now))
        gate.places = 1
        gate.admission.pump()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert (gate.instance.prefills, gate.instance.running, gate.instance.kv_tokens) == (0, 0, 0)

    run(test)


def test_waiting_for_nobody_ends() -> None:
    async def test(now: float) -> None:
        gate = Gate(instance_wait_s=0.05)
        gate.served = False
        (task,) = await gate.wait(ticket(now=now))
        for _ in range(200):
            gate.admission.tick()
            await asyncio.sleep(0.005)
            if task.done():
                break
        with pytest.raises(NoInstance):
            task.result()

    run(test)


def test_a_role_is_what_the_instance_says() -> None:
    assert Instance(status("p", "prefill"), 0.0).role is Role.PREFILL
