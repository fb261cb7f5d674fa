"""The whole way on LMDeploy's engine: router, two pools, KV over the interconnect, a tiny checkpoint."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

if importlib.util.find_spec("lmdeploy") is None:
    pytest.skip("lmdeploy is not installed (make engine)", allow_module_level=True)

from engine.role import Role
from engine.router.local_stack import LocalStack
from engine.router.measure import Streamed, streamed
from tests.engine.pools.reference import Question, Reference, encoded, picture
from tests.engine.router.cluster import wait_until

INSTANCE = {"session_len": 1024, "kv_blocks": 256, "block_size": 16, "max_batch_size": 8, "canary_s": 5.0}
TOKENS = 20


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint)


@pytest.fixture(scope="module", params=[1, 2], ids=["1P+1D", "2P+2D"])
def stack(checkpoint: Path, request: pytest.FixtureRequest) -> Iterator[LocalStack]:
    roles = [Role.PREFILL] * request.param + [Role.DECODE] * request.param
    with LocalStack(checkpoint, roles, **INSTANCE) as started:
        yield started.ready()


def body(question: Question, tokens: int = TOKENS) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(image)}"}}
        for image in question.pictures
    ]
    content = [*parts, {"type": "text", "text": question.text}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "ignore_eos": True}


def ask(stack: LocalStack, *questions: Question, tokens: int = TOKENS) -> list[Streamed]:
    async def run() -> list[Streamed]:
        async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
            return await asyncio.gather(*(streamed(client, stack.url, body(q, tokens)) for q in questions))

    return asyncio.run(run())


def test_tokens_are_those_of_transformers_with_no_one_and_two_images(stack: LocalStack, reference: Reference) -> None:
    questions = [
        Question(f"Question {n}, {'long ' * (10 * (n % 4))}", tuple(picture(84, 56, 10 * n + k) for k in range(n % 3)))
        for n in range(18)
    ]
    answers = ask(stack, *questions)
    assert [answer.error for answer in answers] == [None] * len(questions)
    for question, answer in zip(questions, answers, strict=True):
        assert tuple(answer.tokens) == reference.answer(question, TOKENS)
        assert answer.text == reference.text(answer.tokens)
    assert set(stack.at_rest().values()) == {0}
    metrics = stack.metrics()
    assert metrics["pagemill_router_fallbacks_total"] == 0
    assert metrics['pagemill_router_placed_total{mode="split"}'] >= len(questions)
    assert metrics["pagemill_router_kv_bytes_total"] > 0


def test_a_client_that_leaves_leaves_no_block(stack: LocalStack) -> None:
    questions = [Question(f"Leave {n} " + "words " * 20) for n in range(6)]

    async def run() -> None:
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            tasks = [asyncio.create_task(streamed(client, stack.url, body(q, 400))) for q in questions]
            await asyncio.sleep(0.3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())
    assert set(stack.at_rest().values()) == {0}


def test_an_answer_goes_on_after_its_decode_instance_was_killed(stack: LocalStack, reference: Reference) -> None:
    question = Question("Go on whatever happens", (picture(84, 56, 77),))

    async def run() -> Streamed:
        async with httpx.AsyncClient(timeout=180, trust_env=False) as client:
            task = asyncio.create_task(streamed(client, stack.url, body(question, 300)))
            await asyncio.to_thread(wait_until, lambda: decoding(stack), "it is decoding")
            (victim,) = decoding(stack) or [None]
            assert stack.supervisor
            pid = next(one.pid for one in stack.supervisor.instances if one.settings.engine_id == victim)
            assert pid
            os.kill(pid, signal.SIGKILL)
            return await task

    answer = asyncio.run(run())
    assert answer.error is None
    assert tuple(answer.tokens) == reference.answer(question, 300)
    stack.ready()
    assert set(stack.at_rest().values()) == {0}


def decoding(stack: LocalStack) -> list[str]:
    """Decode instances that have something to do."""
    return [
        i["status"]["address"]["engine_id"]
        for i in stack.state()["instances"]
        if i["running"] and not i["waiting_pull"] and i["status"]["role"] == "decode"
    ]
