"""Where requests go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.balancer.costs import Costs
from engine.pools.messages import Bandwidth, Generate, Health, PeerAddress
from engine.pools.settings import PATIENT_STEPS
from engine.role import Role
from engine.router.errors import InstanceLost, StaleEpoch
from engine.router.instance_client import InstanceClient
from engine.router.links import Links
from engine.router.placement import Mode, Placer
from engine.router.registry import Instance, Registry
from engine.router.ticket import Ticket
from tests.engine.router.instances import status, ticket

COSTS = Costs()


class Greeter(InstanceClient):
    """Greets without a network."""

    def __init__(self, bytes_per_s: float) -> None:
        super().__init__(None)
        self.bytes_per_s = bytes_per_s

    async def connect(self, instance: Instance, peer: PeerAddress, seconds: float) -> Bandwidth:
        if self.bytes_per_s == 0:
            raise InstanceLost("no route")
        return Bandwidth(transport="test", bytes_per_s=self.bytes_per_s)


class Pool:
    """A registry with its links and placer."""

    def __init__(
        self, *ids: str, bytes_per_s: float = 1e9, min_bytes_s: float = 0.0, costs: Costs = COSTS, **fields: Any
    ) -> None:
        roles = {"p": "prefill", "d": "decode", "h": "hybrid"}
        self.registry = Registry(10.0, lambda: None)
        self.links = Links(self.registry, Greeter(bytes_per_s), min_bytes_s, lambda: None)
        self.placer = Placer(self.registry, self.links, costs, 1000)
        for id in ids:
            self.registry.heard(status(id, roles[id[0]], **fields))

    async def greeted(self) -> Pool:
        self.links.update()
        await asyncio.sleep(0.01)
        self.links.update()
        return self

    def place(self, one: Ticket) -> Any:
        return self.placer.place(one, asyncio.get_running_loop().time())

    def where(self, one: Ticket) -> tuple[str, str, str] | None:
        found = self.place(one)
        return (found.prefill.id, found.decode.id, found.mode.value) if found else None

    def __getitem__(self, id: str) -> Instance:
        found = self.registry.get(id)
        assert found
        return found


def run(test: Callable[[], Awaitable[Any]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_prefill_and_decode_share_the_work() -> None:
    async def test() -> None:
        pool = await Pool("p0", "d0").greeted()
        assert pool.where(ticket()) == ("p0", "d0", "split")

    run(test)


def test_the_prefix_decides_before_the_load() -> None:
    async def test() -> None:
        pool = await Pool("p0", "p1", "d0").greeted()
        again = ticket("same beginning", 500)
        pool["p1"].has_prefilled(again.prefixes)
        pool.place(ticket("other", 300))
        assert pool.where(again) == ("p1", "d0", "split")

    run(test)


def test_a_prefix_counts_until_the_instance_says_that_it_is_gone() -> None:
    async def test() -> None:
        pool = Pool("h0")
        one = ticket("a")
        pool["h0"].has_prefilled(one.prefixes)
        assert pool["h0"].hit(one.prefixes) == 1.0
        assert pool["h0"].hit(ticket("b").prefixes) == 0.5
        pool.registry.heard(status("h0"))
        assert pool["h0"].hit(one.prefixes) == 0.0

    run(test)


def test_load_spreads_over_both_pools() -> None:
    async def test() -> None:
        pool = await Pool("p0", "p1", "d0", "d1").greeted()
        placed = [pool.where(ticket(str(n), 100)) for n in range(4)]
        assert {p for p, _, _ in placed if p} == {"p0", "p1"}
        assert {d for _, d, _ in placed if d} == {"d0", "d1"}

    run(test)


def test_an_instance_takes_no_more_than_it_can_hold() -> None:
    async def test() -> None:
        pool = await Pool("p0", "d0", max_batch_size=2).greeted()
        placed = [pool.place(ticket(str(n), 100)) for n in range(3)]
        assert [bool(one) for one in placed] == [True, True, False]
        placed[0].close()
        assert pool.place(ticket("again", 100))

    run(test)


def test_a_prompt_that_fits_nowhere_goes_alone() -> None:
    async def test() -> None:
        pool = Pool("h0", total_blocks=10)
        assert pool.where(ticket("huge", 100_000)) == ("h0", "h0", "hybrid")
        assert pool.where(ticket("small", 10)) is None

    run(test)


def test_counts_return_to_zero() -> None:
    async def test() -> None:
        pool = await Pool("p0", "d0", "d1").greeted()
        one = pool.place(ticket())
        one.prefilled()
        assert pool["p0"].waiting_pull == 1
        one.move(pool["d1"])
        one.pulled()
        one.close()
        one.close()
        for instance in pool.registry:
            assert (instance.prefills, instance.running, instance.waiting_pull) == (0, 0, 0)
            assert instance.kv_tokens == instance.prefill_s == instance.prefill_tokens == 0

    run(test)


@pytest.mark.parametrize(("ids", "where"), [(("d0",), "d0"), (("p0",), "p0")])
def test_one_role_alone_does_both(ids: tuple[str, ...], where: str) -> None:
    async def test() -> None:
        pool = await Pool(*ids).greeted()
        assert pool.where(ticket()) == (where, where, "no_pair")

    run(test)


def test_pairs_that_cannot_greet_are_none() -> None:
    async def test() -> None:
        pool = await Pool("p0", "d0", bytes_per_s=0).greeted()
        assert pool.where(ticket()) == ("d0", "d0", "no_pair")

    run(test)


def test_a_pair_that_greets_is_waited_for() -> None:
    async def test() -> None:
        pool = Pool("p0", "d0")
        pool.links.update()
        assert pool.where(ticket()) is None
        await pool.greeted()
        assert pool.where(ticket()) == ("p0", "d0", "split")

    run(test)


def test_links_too_slow_for_the_traffic_are_not_used() -> None:
    async def test() -> None:
        pool = await Pool("p0", "d0", bytes_per_s=1e6).greeted()
        now = asyncio.get_running_loop().time()
        assert pool.where(ticket("calm")) == ("p0", "d0", "split")
        pool.links.traffic.add(1e9, now)
        pool.links.update()
        assert pool.links.too_slow
        found = pool.place(ticket("flood"))
        assert found.mode is Mode.BANDWIDTH and found.prefill is found.decode

    run(test)


def test_links_below_the_minimum_are_not_used() -> None:
    async def test() -> None:
        pool = await Pool("p0", "d0", bytes_per_s=1e6, min_bytes_s=1e7).greeted()
        assert pool.place(ticket()).mode is Mode.BANDWIDTH

    run(test)


def test_whoever_failed_a_request_is_its_last_choice() -> None:
    async def test() -> None:
        pool = Pool("h0", "h1")
        one = ticket(avoid={("h0", 1)})
        assert pool.where(one) == ("h1", "h1", "hybrid")
        pool["h1"].failed(asyncio.get_running_loop().time())
        assert pool.where(ticket(avoid={("h0", 1)})) == ("h0", "h0", "hybrid")

    run(test)


@pytest.mark.parametrize(
    "fields",
    [{"phase": "draining"}, {"phase": "failed"}, {"health": Health(ok=False, reason="wrong", age_s=0, seconds=0)}],
)
def test_who_is_not_well_gets_nothing(fields: dict[str, Any]) -> None:
    async def test() -> None:
        assert Pool("h0", **fields).place(ticket()) is None

    run(test)


def test_who_is_about_to_prefill_already_does_and_decodes_nothing_more() -> None:
    async def test() -> None:
        pool = Pool("p0", "d0", "d1")
        pool["d0"].role_wanted = Role.PREFILL
        await pool.greeted()
        placed = [pool.where(ticket(str(n), 100)) for n in range(3)]
        assert {p for p, _, _ in placed if p} == {"p0", "d0"}
        assert {d for _, d, _ in placed if d} == {"d1"}
        pool["d0"].switching = True
        assert pool.where(ticket("switching", 100)) == ("p0", "d1", "split")

    run(test)


def test_who_is_about_to_decode_already_does_and_prefills_nothing_more() -> None:
    async def test() -> None:
        pool = Pool("p0", "p1", "d0", max_batch_size=2)
        pool["p1"].role_wanted = Role.DECODE
        await pool.greeted()
        placed = [pool.where(ticket(str(n), 100)) for n in range(2)]
        assert {(p, d) for p, d, _ in placed if p} == {("p0", "d0"), ("p0", "p1")}

    run(test)


def test_one_that_still_decodes_is_the_slower_choice_for_prompts() -> None:
    async def test() -> None:
        pool = Pool("p0", "d0", "d1")
        pool["d0"].role_wanted = Role.PREFILL
        pool["d0"].running = 4
        await pool.greeted()
        held_up = PATIENT_STEPS * COSTS.step(4, 0)
        short = ticket("short", prefill_s=0.4 * held_up)
        assert [pool.where(short), pool.where(short)] == [("p0", "d1", "split")] * 2
        pool.place(short)
        assert pool.where(ticket("later")) == ("d0", "d1", "split")

    run(test)


def test_without_overlap_who_changes_takes_nothing() -> None:
    async def test() -> None:
        pool = Pool("p0", "d0", "d1", costs=Costs(overlap=0.0))
        pool["d0"].role_wanted = Role.PREFILL
        await pool.greeted()
        assert {pool.where(ticket(str(n), 100)) for n in range(3)} == {("p0", "d1", "split")}

    run(test)


def test_a_request_that_no_pair_can_share_is_not_given_to_who_changes() -> None:
    async def test() -> None:
        pool = await Pool("d0", "d1").greeted()
        pool["d0"].role_wanted = Role.HYBRID
        assert pool.where(ticket()) == ("d1", "d1", "no_pair")
        pool["d1"].role_wanted = Role.HYBRID
        assert pool.where(ticket()) is None

    run(test)


def test_another_model_is_another_queue() -> None:
    async def test() -> None:
        pool = Pool("h0")
        assert pool.place(ticket(model="other")) is None
        assert pool.registry.models() == ["m"]

    run(test)


def test_incarnations_follow_each_other() -> None:
    async def test() -> None:
        pool = Pool("h0")
        old = pool["h0"]
        pool.registry.heard(status("h0", epoch=2))
        assert old.lost and not pool["h0"].lost and pool["h0"].epoch == 2
        with pytest.raises(StaleEpoch):
            pool.registry.heard(status("h0", epoch=1))

    run(test)


def test_a_lease_that_ends_ends_every_wait() -> None:
    async def test() -> None:
        registry = Registry(0.02, lambda: None)
        instance = registry.heard(status("h0"))

        async def wait() -> None:
            async with instance.watched(60):
                await asyncio.sleep(60)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        registry.expire()
        with pytest.raises(InstanceLost):
            await task
        assert len(registry) == 0 and instance.lost

    run(test)


def test_prompts_as_tokens_have_no_prefix() -> None:
    async def test() -> None:
        pool = Pool("h0")
        request = Generate(request_id="t", prompt_token_ids=(1, 2, 3))
        assert pool.where(ticket(request=request, prefixes=())) == ("h0", "h0", "hybrid")

    run(test)
