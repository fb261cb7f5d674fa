"""An instance that is held to a share of one core: it takes no more, computes the same, and answers all the while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.pools.messages import Health
from engine.pools.settings import InstanceSettings
from engine.pools.supervisor import Supervisor
from engine.role import Role
from tests.engine.pools.client import Client, request
from tests.engine.pools.conftest import TOKEN
from tests.engine.pools.reference import Question, Reference
from tests.engine.router.cluster import wait_until

SHARE = 0.02
TOKENS = 20


@pytest.fixture(scope="module")
def paced(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = InstanceSettings(
        model=checkpoint,
        token=TOKEN,
        engine_id="paced",
        epoch=0,
        role=Role.HYBRID,
        kv_blocks=160,
        block_size=16,
        session_len=640,
        max_batch_size=4,
        canary_s=30.0,
        cpu_share=SHARE,
    )
    logs = tmp_path_factory.mktemp("paced")
    with Supervisor([settings], logs) as supervisor:
        client = Client(supervisor.instances[0])
        asyncio.run(client.healthy())
        yield client


def test_its_log_says_so(paced: Client) -> None:
    path = paced.instance.log_path
    assert path
    wait_until(lambda: f"held to {SHARE} of one core" in path.read_text("utf-8"), "it says so")


def test_its_steps_take_no_more_than_the_share_and_give_the_same_tokens(paced: Client, reference: Reference) -> None:
    question = Question("Slowly, " + "please " * 30)
    asyncio.run(paced.generate(request(question, TOKENS)))
    process = psutil.Process(paced.instance.pid)
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    answer = asyncio.run(paced.generate(request(question, TOKENS)))
    used, passed = sum(process.cpu_times()[:2]) - before, time.monotonic() - began
    assert answer.tokens == reference.answer(question, TOKENS)
    # Beside its steps the process serves HTTP, and that is not held: a step of this model is short.
    assert used <= 2 * SHARE * passed + 0.1


def test_health_answers_while_a_step_waits_and_tells_the_share(paced: Client) -> None:
    async def run() -> None:
        running = asyncio.create_task(paced.generate(request(Question("x" * 300), TOKENS)))
        answered = 0
        async with paced._http() as http:
            while not running.done():
                health = Health.model_validate_json((await http.get("/health")).content)
                assert health.ok and health.cpu_share == SHARE
                answered += 1
        # More often than there were steps: nothing waited for one.
        assert answered > TOKENS
        await running

    asyncio.run(run())


def test_a_share_that_is_none_is_refused(checkpoint: Path) -> None:
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match="cpu_share"):
            InstanceSettings(model=checkpoint, token=TOKEN, engine_id="x", epoch=0, cpu_share=share)
