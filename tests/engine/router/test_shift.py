"""Four real instances under a load that shifts: roles follow, nothing is lost, and no token is another one."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("lmdeploy")

from engine.balancer.costs import Costs
from engine.role import Role
from engine.router.local_stack import LocalStack
from engine.router.measure import Streamed, streamed
from tests.engine.pools.reference import Question, Reference
from tests.engine.router.test_real_engine import body

INSTANCE = {"session_len": 1024, "kv_blocks": 256, "block_size": 16, "max_batch_size": 8, "canary_s": 30.0}
QUESTIONS = 6
CLEAR = 1e-4
"""Logits of a good answer's tokens are at least so much above others': several times the rounding of any batch."""

PROSE, TABLES = 6, 80
"""Tokens. On any machine the one asks for more prefill than decoding, the other for over twice as much decoding."""
CLIENTS = 36
"""More than twice as many as two instances have places: what waits shows a split that is too small."""

PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def stack(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    # Costs of devices on which prose is nearly all prefill, and tables nearly all decode.
    costs = Costs(prefill_request_s=0.02, text_token_s=1e-4, step_s=0.02, step_sequence_s=1e-3, tpot_bound_s=1.0)
    path = tmp_path_factory.mktemp("costs") / "costs.json"
    costs.save(path)
    roles = [Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE]
    # Whether hybrids carry more than the right split depends on the machine.
    router = {"balance": "act", "balance_hybrids": False, "costs": str(path)}
    with LocalStack(checkpoint, roles, router, cpu_share=0.3, prefix_caching=False, **INSTANCE) as started:
        yield started.ready()


def usable(stack: LocalStack) -> list[str]:
    return [i["status"]["role"] for i in stack.state()["instances"] if i["usable"]]


def balance(stack: LocalStack) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {stack.token}"}
    found: dict[str, Any] = httpx.get(f"{stack.url}/v1/engine/balance", headers=headers).json()
    return found


def clear_questions(reference: Reference) -> dict[Question, list[int]]:
    """Questions to which only one answer is right, with that."""
    found: dict[Question, list[int]] = {}
    for number in itertools.count():
        question = Question(f"Page {number}: " + "a line of the page " * 12)
        answer = reference.answer(question, TABLES)
        if reference.margin(question, answer) > CLEAR:
            found[question] = list(answer)
        if len(found) == QUESTIONS:
            return found
    raise AssertionError


async def serve_until(
    stack: LocalStack, questions: Sequence[Question], tokens: int, holds: Callable[[list[str]], bool]
) -> list[tuple[Question, Streamed]]:
    """Clients that ask one request after the other until the roles are as wanted; all their answers."""
    turns, answers = itertools.cycle(questions), list[tuple[Question, Streamed]]()
    over = asyncio.Event()

    async def client(http: httpx.AsyncClient) -> None:
        while not over.is_set():
            question = next(turns)
            answers.append((question, await streamed(http, stack.url, body(question, tokens))))

    async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
        clients = [asyncio.create_task(client(http)) for _ in range(CLIENTS)]
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not holds(roles := await asyncio.to_thread(usable, stack)):
                assert time.monotonic() < deadline, f"{roles}: {balance(stack)['decisions'][-5:]}"
                await asyncio.sleep(0.1)
        finally:
            over.set()
            await asyncio.gather(*clients)
    return answers


def test_roles_follow_the_load_from_tables_to_prose_and_every_answer_is_right(
    stack: LocalStack, checkpoint: Path
) -> None:
    right = clear_questions(Reference(checkpoint))
    answers = asyncio.run(serve_until(stack, list(right), TABLES, lambda roles: roles.count("decode") == 3))
    # Clients that wait for their answers ask for no more than two instances can prefill.
    answers += asyncio.run(serve_until(stack, list(right), PROSE, lambda roles: roles.count("prefill") >= 2))
    assert [answer.error for _, answer in answers if answer.error] == []
    assert all(answer.tokens == right[question][: len(answer.tokens)] for question, answer in answers)
    assert {len(answer.tokens) for _, answer in answers} == {PROSE, TABLES}
    assert set(stack.at_rest().values()) == {0}
    done = [flip for flip in balance(stack)["flips"] if flip["stage"] == "done"]
    assert {flip["to"] for flip in done} == {"prefill", "decode"}
    assert [status["counters"]["weights_loaded_total"] for status in stack.statuses()] == [1] * 4
