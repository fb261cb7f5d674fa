"""Health is what the last canary said, and how long ago."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("lmdeploy")

from engine.pools.canary import TOKENS, Canary
from engine.pools.errors import EngineFailed
from engine.pools.sequence import Answer, Job, Step


class ScriptedEngine:
    """Answers each job with the next of some steps."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.asked: list[int] = []
        self.cancelled = 0

    def submit(self, job: Job) -> Answer:
        self.asked.append(job.config.max_new_tokens)
        answer = Answer(1, self._cancel)
        answer.push(self.steps.pop(0))
        return answer

    def _cancel(self, session_id: int) -> None:
        self.cancelled += 1


def right(*tokens: int) -> Step:
    return Step(token_ids=tokens, finished=True)


def canary(*steps: Step, interval_s: float = 60) -> Canary:
    return Canary(ScriptedEngine(*steps), vocabulary=100, interval_s=interval_s)  # type: ignore[arg-type]


def test_an_answer_like_the_first_is_healthy() -> None:
    async def run() -> None:
        one = canary(right(1, 2), right(1, 2))
        assert not one.health().ok
        assert await one.ask()
        assert await one.ask()
        assert one.health().ok

    asyncio.run(run())


def test_another_answer_than_at_the_start_is_not() -> None:
    async def run() -> None:
        one = canary(right(1, 2), right(1, 3), right(1, 2))
        await one.ask()
        assert not await one.ask()
        assert (one.health().ok, one.health().reason) == (False, "the canary answered (1, 3), not (1, 2)")
        await one.ask()
        assert one.health().ok

    asyncio.run(run())


def test_a_shorter_answer_is_compared_with_the_beginning_of_the_first() -> None:
    async def run() -> None:
        one = canary(right(1, 2, 3), right(1, 2), right(1, 3))
        await one.ask()
        assert await one.ask(2)
        assert one.engine.asked == [TOKENS, 2]  # type: ignore[attr-defined]
        assert not await one.ask(2)
        assert one.health().reason == "the canary answered (1, 3), not (1, 2)"

    asyncio.run(run())


def test_no_answer_is_not() -> None:
    async def run() -> None:
        one = canary(right(1), Step(error=EngineFailed("it broke")))
        await one.ask()
        assert not await one.ask()
        assert "it broke" in one.health().reason

    asyncio.run(run())


def test_an_old_answer_says_nothing_about_now() -> None:
    async def run() -> None:
        one = canary(right(1), interval_s=0.001)
        await one.ask()
        await asyncio.sleep(0.01)
        health = one.health()
        assert not health.ok
        assert "seconds old" in health.reason

    asyncio.run(run())
