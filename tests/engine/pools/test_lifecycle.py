"""What ends a request or an instance leaves nothing behind, costs nobody else anything, and is over in bounded time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

import httpx
import pytest

from engine.pools.messages import Chunk, Decode, FinishReason, Prefilled, RoleChange
from engine.role import Role
from tests.engine.pools.client import Refused, only, request, until
from tests.engine.pools.conftest import LEASE_SECONDS, Pools
from tests.engine.pools.reference import Question, Reference

QUESTION = Question("What ends it? " * 6)


async def prefilled(pools: Pools, tokens: int = 24) -> tuple[Decode, Prefilled]:
    asked = request(QUESTION, tokens)
    made = await pools.prefill.prefill(asked)
    source = (await pools.prefill.status()).address
    return Decode(request=asked, prefilled=made, source=source, pull_deadline_s=30), made


def test_a_prefill_that_nobody_pulls_is_taken_back_when_its_lease_ends(pools: Pools) -> None:
    async def run() -> None:
        before = (await pools.prefill.status()).counters["leases_expired_total"]
        await prefilled(pools)
        held = await pools.prefill.status()
        assert held.leases == 1
        assert held.free_blocks < held.total_blocks

        async def is_free() -> bool:
            now = await pools.prefill.status()
            return now.free_blocks == now.total_blocks and now.counters["leases_expired_total"] == before + 1

        await until(is_free, LEASE_SECONDS + 20)

    asyncio.run(run())


def test_a_released_prefill_is_free_at_once_and_releasing_twice_is_harmless(pools: Pools) -> None:
    async def run() -> None:
        order, _ = await prefilled(pools)
        for _ in range(2):
            await pools.prefill.call("/v1/release", {"request_id": order.request.request_id})
        await pools.prefill.holds_nothing()

    asyncio.run(run())


def test_a_pull_after_the_lease_has_ended_is_computed_again_and_says_so(pools: Pools, reference: Reference) -> None:
    async def run() -> None:
        order, made = await prefilled(pools)
        before = (await pools.decode.status()).counters["fallbacks_total"]
        await pools.prefill.call("/v1/release", {"request_id": order.request.request_id})
        found = await pools.decode.decode(order.request, made, order.source)
        assert found.tokens == reference.answer(QUESTION, 24)
        assert (found.chunks[1].fallback or "").startswith("lease_expired")
        assert (await pools.decode.status()).counters["fallbacks_total"] == before + 1
        # And the next one is pulled as ever.
        order, made = await prefilled(pools)
        again = await pools.decode.decode(order.request, made, order.source)
        assert again.tokens == found.tokens
        assert again.chunks[1].fallback is None
        await pools.hold_nothing()

    asyncio.run(run())


@pytest.mark.parametrize(
    "broken",
    [
        {"block_ids": ()},
        {"block_ids": (10_000,) * 20},
        {"lease": "no lease"},
        {"epoch": 1},
    ],
    ids=["no blocks", "blocks that are not there", "no lease", "another epoch"],
)
def test_a_bad_pull_costs_its_own_request_nothing_but_time(
    pools: Pools, reference: Reference, broken: dict[str, object]
) -> None:
    async def run() -> None:
        order, made = await prefilled(pools)
        assert made.kv
        bad = made.model_copy(update={"kv": made.kv.model_copy(update=broken)})
        good, whole = await prefilled(pools)
        found, other = await asyncio.gather(
            pools.decode.decode(order.request, bad, order.source),
            pools.decode.decode(good.request, whole, good.source),
        )
        assert found.tokens == other.tokens == reference.answer(QUESTION, 24)
        assert found.chunks[1].fallback
        assert other.chunks[1].fallback is None
        await pools.prefill.call("/v1/release", {"request_id": order.request.request_id})
        await pools.hold_nothing()

    asyncio.run(run())


def test_an_abort_while_it_decodes_frees_both_sides(pools: Pools) -> None:
    async def run() -> None:
        order, _ = await prefilled(pools, tokens=400)
        seen: list[Chunk] = []
        async for chunk in pools.decode.chunks("/v1/decode", order):
            if len(seen) == 2:
                for _ in range(2):
                    await pools.decode.call("/v1/abort", {"request_id": order.request.request_id})
            seen.append(chunk)
        assert seen[-1].finish_reason is FinishReason.ABORT
        assert len(seen) < 400
        await pools.hold_nothing()

    asyncio.run(run())


def test_an_abort_of_a_prefill_that_waits_for_its_reader_frees_it(pools: Pools) -> None:
    async def run() -> None:
        order, _ = await prefilled(pools)
        await pools.prefill.call("/v1/abort", {"request_id": order.request.request_id})
        await pools.prefill.holds_nothing()

    asyncio.run(run())


def test_an_abort_while_it_prefills_is_a_typed_error_and_frees_it(pools: Pools) -> None:
    async def run() -> None:
        asked = request(Question("Very long. " * 40))
        running = asyncio.create_task(pools.prefill.prefill(asked))

        async def is_known() -> bool:
            now = await pools.prefill.status()
            if now.running or now.waiting:
                await pools.prefill.call("/v1/abort", {"request_id": asked.request_id})
                return True
            return running.done()

        await until(is_known, 30)
        try:
            await running
        except Refused as refused:
            assert refused.failure.code == "aborted"
            assert not refused.failure.retryable
        await pools.prefill.call("/v1/abort", {"request_id": asked.request_id})
        await pools.prefill.holds_nothing()

    asyncio.run(run())


def test_aborts_at_any_instant_leave_nothing_behind(pools: Pools, reference: Reference) -> None:
    async def one(at: int) -> None:
        asked = request(Question(f"Number {at}. " * (1 + at % 5)), 60)
        client = pools.prefill if at % 3 == 0 else pools.decode

        async def abort() -> None:
            await asyncio.sleep(at % 8 * 0.01)
            await client.call("/v1/abort", {"request_id": asked.request_id})

        async def ask() -> None:
            with suppress(Refused):
                if at % 3 == 0:
                    await client.prefill(asked)
                elif at % 3 == 1:
                    await client.generate(asked)
                else:
                    made = await pools.prefill.prefill(asked)
                    await client.decode(asked, made, (await pools.prefill.status()).address)

        await asyncio.gather(ask(), abort())
        # One that came before its request stopped nothing.
        for each in (pools.prefill, pools.decode):
            await each.call("/v1/abort", {"request_id": asked.request_id})

    async def run() -> None:
        await asyncio.gather(*(one(at) for at in range(36)))
        await pools.hold_nothing()
        order, made = await prefilled(pools)
        found = await pools.decode.decode(order.request, made, order.source)
        assert found.tokens == reference.answer(QUESTION, 24)

    asyncio.run(run())


def test_a_client_that_goes_away_is_an_abort(pools: Pools) -> None:
    async def run() -> None:
        before = (await pools.decode.status()).counters["requests_aborted_total"]
        order, _ = await prefilled(pools, tokens=400)
        chunks = pools.decode.chunks("/v1/decode", order)
        await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]

        async def is_noted() -> bool:
            return (await pools.decode.status()).counters["requests_aborted_total"] == before + 1

        await until(is_noted, 30)
        await pools.hold_nothing()

    asyncio.run(run())


def test_a_deadline_ends_a_request_with_a_typed_error(pools: Pools) -> None:
    async def run() -> None:
        asked = request(QUESTION, 500).model_copy(update={"deadline_s": 0.2})
        try:
            found = await pools.decode.generate(asked)
        except Refused as refused:
            failure = refused.failure
        else:
            assert found.last.error
            failure = found.last.error
        assert failure.code == "deadline_exceeded"
        await pools.decode.holds_nothing()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"prompt_token_ids": ()}, "bad_request"),
        ({"prompt_token_ids": (1, 999_999)}, "bad_request"),
        ({"prompt_token_ids": tuple([5] * 5000)}, "prompt_too_long"),
        ({"messages": ({"role": "user", "content": ({"image": "bm8gaW1hZ2U="},)},)}, "bad_image"),
        ({"messages": ({"role": "user", "content": ({"image": "%%%"},)},)}, "bad_image"),
        ({"messages": ({"role": "user", "content": ({"text": "<|image_pad|>"},)},)}, "bad_request"),
        ({"messages": ({"role": "nobody", "content": ({"text": "x"},)},)}, "bad_request"),
        ({"sampling": {"max_tokens": 0}}, "bad_request"),
        ({"unknown": 1}, "bad_request"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value)[:40],
)
def test_what_cannot_be_served_is_refused_with_a_code(pools: Pools, body: dict[str, object], code: str) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(pools.decode.call("/v1/generate", {"request_id": "bad", **body}))
    assert refused.value.failure.code == code
    assert not refused.value.failure.retryable


def test_a_role_refuses_the_work_of_another_and_both_compute_whole_requests(pools: Pools, reference: Reference) -> None:
    async def run() -> None:
        order, made = await prefilled(pools)
        with pytest.raises(Refused) as refused:
            await pools.prefill.decode(order.request, made, order.source)
        assert (refused.value.failure.code, refused.value.failure.retryable) == ("wrong_role", True)
        with pytest.raises(Refused) as refused:
            await pools.decode.prefill(request(QUESTION))
        assert refused.value.failure.code == "wrong_role"
        await pools.prefill.call("/v1/release", {"request_id": order.request.request_id})
        assert (await pools.prefill.generate(request(QUESTION))).tokens == reference.answer(QUESTION, 24)

    asyncio.run(run())


def test_without_the_token_nothing_is_answered(pools: Pools) -> None:
    for path in ("/health", "/v1/instance", "/metrics"):
        answer = httpx.get(pools.decode.instance.url + path, trust_env=False, headers={"Authorization": "Bearer no"})
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthorised"


def test_roles_change_places_without_loading_weights_and_kv_goes_the_other_way(
    pools: Pools, reference: Reference
) -> None:
    """The other way is also the way out of a KV cache that is mirrored in host memory."""

    async def flip(first: Role, second: Role) -> None:
        for client, role in ((pools.prefill, first), (pools.decode, second)):
            epoch = (await client.status()).address.epoch
            await client.call("/v1/role", RoleChange(role=role, epoch=epoch))

    async def run() -> None:
        with pytest.raises(Refused) as refused:
            await pools.prefill.call("/v1/role", RoleChange(role=Role.DECODE, epoch=1))
        assert refused.value.failure.code == "stale_epoch"
        await flip(Role.DECODE, Role.PREFILL)
        try:
            status = await pools.decode.status()
            assert status.role is Role.PREFILL
            for transport in ("shared_memory", "tcp"):
                asked = request(QUESTION)
                made = await pools.decode.prefill(asked)
                found = await pools.prefill.decode(asked, made, only(status.address, transport))
                assert found.tokens == reference.answer(QUESTION, 24)
                assert found.chunks[1].fallback is None
            for client in (pools.prefill, pools.decode):
                assert (await client.status()).counters["weights_loaded_total"] == 1
        finally:
            await flip(Role.PREFILL, Role.DECODE)
        await pools.hold_nothing()

    asyncio.run(run())


def test_a_change_of_role_ends_what_the_new_role_does_not_do_retryably_and_nothing_else(
    pools: Pools, reference: Reference
) -> None:
    async def run() -> None:
        status = await pools.decode.status()
        order, made = await prefilled(pools, tokens=500)
        decoding = asyncio.create_task(pools.decode.decode(order.request, made, order.source))
        whole = asyncio.create_task(pools.decode.generate(request(QUESTION, 300)))

        async def both_run() -> bool:
            return (await pools.decode.status()).running >= 2 or decoding.done()

        await until(both_run, 30)
        change = RoleChange(role=Role.PREFILL, epoch=status.address.epoch, drain_s=0.1)
        try:
            await pools.decode.call("/v1/role", change)
            last = (await decoding).last
            assert last.error and (last.error.code, last.error.retryable) == ("draining", True)
            found = await whole
            assert found.last.finish_reason is FinishReason.LENGTH
            assert found.tokens[:24] == reference.answer(QUESTION, 24)
            assert (await pools.decode.status()).role is Role.PREFILL
        finally:
            back = RoleChange(role=Role.DECODE, epoch=status.address.epoch)
            await pools.decode.call("/v1/role", back)
        await pools.prefill.call("/v1/release", {"request_id": order.request.request_id})
        await pools.hold_nothing()

    asyncio.run(run())


def test_an_instance_that_is_about_to_prefill_does_so_while_its_last_answers_end(
    pools: Pools, reference: Reference
) -> None:
    async def run() -> None:
        epoch = (await pools.decode.status()).address.epoch
        order, made = await prefilled(pools, tokens=200)
        decoding = asyncio.create_task(pools.decode.decode(order.request, made, order.source))

        async def decodes() -> bool:
            return (await pools.decode.status()).running >= 1

        await until(decodes, 30)
        asked = request(QUESTION).model_copy(update={"early": True})
        early = await pools.decode.prefill(asked)
        assert not decoding.done()
        change = asyncio.create_task(pools.decode.call("/v1/role", RoleChange(role=Role.PREFILL, epoch=epoch)))
        try:
            assert (await decoding).tokens[:24] == reference.answer(QUESTION, 24)
            await change
            # Its KV has stayed through the change, and is pulled by the other instance, which decodes now.
            first = (await pools.prefill.status()).address.epoch
            await pools.prefill.call("/v1/role", RoleChange(role=Role.DECODE, epoch=first))
            source = (await pools.decode.status()).address
            found = await pools.prefill.decode(asked, early, source)
            assert found.tokens == reference.answer(QUESTION, 24)
            assert found.chunks[1].fallback is None
        finally:
            for client, role in ((pools.prefill, Role.PREFILL), (pools.decode, Role.DECODE)):
                now = (await client.status()).address.epoch
                await client.call("/v1/role", RoleChange(role=role, epoch=now))
        await pools.hold_nothing()

    asyncio.run(run())


def test_health_is_a_canary_with_its_age_and_answers_while_a_step_is_computed(pools: Pools) -> None:
    async def run() -> None:
        before = await pools.decode.status()
        busy = [asyncio.create_task(pools.decode.generate(request(Question("x" * 400), 100))) for _ in range(6)]
        await pools.decode.call("/health")

        async def asked_again() -> bool:
            now = await pools.decode.status()
            return now.counters["canaries_total"] > before.counters["canaries_total"] and now.health.ok

        await until(asked_again, 60)
        assert (await pools.decode.status()).counters["canaries_failed_total"] == 0
        await asyncio.gather(*busy)

    asyncio.run(run())


def test_a_prefill_instance_that_is_killed_in_a_pull_costs_only_time_and_comes_back(
    pools: Pools, reference: Reference
) -> None:
    """Last in this file: the prefill instance is another incarnation afterwards."""

    async def run() -> None:
        order, made = await prefilled(pools)
        before = await pools.prefill.status()
        await pools.decode.decode(*(await fresh(pools)))
        pid = pools.prefill.instance.pid
        assert pid
        # Stopped, so that the pull is under way when it dies.
        os.kill(pid, signal.SIGSTOP)
        pulling = asyncio.create_task(pools.decode.decode(order.request, made, only(order.source, "shared_memory")))

        async def is_pulling() -> bool:
            now = await pools.decode.status()
            return now.running + now.waiting > 0

        await until(is_pulling, 30)
        started = time.monotonic()
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        found = await pulling
        assert found.tokens == reference.answer(QUESTION, 24)
        assert found.chunks[1].fallback
        assert time.monotonic() - started < 60
        await pools.decode.holds_nothing()
        # Its supervisor starts it again, as another incarnation.
        await pools.prefill.healthy()
        after = await pools.prefill.status()
        assert after.address.epoch > before.address.epoch
        assert pools.prefill.instance.restarts == 1
        stale = await pools.decode.decode(order.request, made, order.source)
        assert stale.tokens == found.tokens
        assert stale.chunks[1].fallback
        order, made = await prefilled(pools)
        again = await pools.decode.decode(order.request, made, order.source)
        assert again.chunks[1].fallback is None
        await pools.hold_nothing()

    asyncio.run(run())


async def fresh(pools: Pools) -> tuple[object, Prefilled, object]:
    order, made = await prefilled(pools)
    return order.request, made, order.source
