"""Requests are admitted within bounds, and each ends when it is told to."""

from __future__ import annotations

import asyncio

import pytest

from engine.pools.errors import Aborted, DeadlineExceeded, Draining, DuplicateRequest, Overloaded
from engine.pools.messages import Generate, Sampling
from engine.pools.requests import Requests
from engine.pools.sequence import Answer, Step


def ask(name: str, deadline_s: float = 60) -> Generate:
    return Generate(request_id=name, prompt_token_ids=(1,), sampling=Sampling(max_tokens=9), deadline_s=deadline_s)


def ignore(error: BaseException) -> None:
    pass


def test_what_is_too_much_is_refused_until_something_ends() -> None:
    async def run() -> None:
        requests = Requests(1)
        with requests.admit(ask("a"), "prefill", ignore):
            with pytest.raises(DuplicateRequest), requests.admit(ask("a"), "prefill", ignore):
                pass
            with pytest.raises(Overloaded) as refused, requests.admit(ask("b"), "prefill", ignore):
                pass
            assert refused.value.retryable
            assert requests.remaining_tokens == 9
        with requests.admit(ask("b"), "prefill", ignore):
            assert len(requests) == 1

    asyncio.run(run())


def test_an_abort_wakes_whoever_waits_and_stops_the_engine() -> None:
    async def run() -> None:
        stopped: list[int] = []
        requests = Requests(4)
        ended: list[BaseException] = []
        with pytest.raises(Aborted), requests.admit(ask("a"), "prefill", ended.append) as active:
            active.follow(Answer(5, stopped.append))
            asyncio.get_running_loop().call_later(0.01, requests.abort, "a")
            await active.next()
        assert stopped == [5]
        assert isinstance(ended[0], Aborted)
        assert not requests.abort("a")

    asyncio.run(run())


def test_a_deadline_is_kept_and_an_earlier_limit_stops_nothing() -> None:
    async def run() -> None:
        requests = Requests(4)
        with requests.admit(ask("a", deadline_s=2), "prefill", ignore) as active:
            answer = active.follow(Answer(1, ignore))  # type: ignore[arg-type]
            with pytest.raises(TimeoutError):
                await active.next(until=0.0)
            answer.push(Step(token_ids=(1,)))
            assert (await active.next()).token_ids == (1,)
            with pytest.raises(DeadlineExceeded):
                await active.next()

    asyncio.run(run())


def test_draining_one_kind_of_work_leaves_the_others_alone() -> None:
    async def run() -> None:
        requests = Requests(4)

        async def serve(id: str, work: str) -> None:
            with requests.admit(ask(id), work, ignore) as active:
                active.follow(Answer(1, ignore))  # type: ignore[arg-type]
                await active.next()

        decoding, prefilling = (asyncio.create_task(serve(work, work)) for work in ("decode", "prefill"))
        await asyncio.sleep(0)
        await requests.drain(0.05, Draining("over"), {"decode"})
        with pytest.raises(Draining):
            await decoding
        assert not prefilling.done() and len(requests) == 1
        await asyncio.wait_for(requests.drain(5.0, Draining("over"), {"decode"}), 1.0)
        requests.stop_all(Draining("over"))
        with pytest.raises(Draining):
            await prefilling

    asyncio.run(run())


def test_draining_waits_and_then_stops_what_is_left() -> None:
    async def run() -> None:
        requests = Requests(4)

        async def serve() -> None:
            with requests.admit(ask("a"), "prefill", ignore) as active:
                active.follow(Answer(1, ignore))  # type: ignore[arg-type]
                await active.next()

        serving = asyncio.create_task(serve())
        await asyncio.sleep(0)
        await requests.drain(0.05, Draining("over"))
        with pytest.raises(Draining):
            await serving
        assert len(requests) == 0

    asyncio.run(run())
