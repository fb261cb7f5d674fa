"""An instance whose engine dies says so by its exit status, and its supervisor starts it again."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from engine.pools.serve import ENGINE_DIED
from engine.pools.settings import InstanceSettings
from engine.pools.supervisor import Supervisor
from tests.engine.pools.client import START_SECONDS, Client, Refused, request, until
from tests.engine.pools.conftest import TOKEN
from tests.engine.pools.reference import Question, Reference

# Python runs this in every process that finds it: from SIGUSR1 on, the model's next step fails, as on a lost device.
FAULT = """
import gc, signal

def lost(*_):
    raise RuntimeError("the device is lost")

def break_the_model(*_):
    for found in gc.get_objects():
        if type(found).__name__ == "EngineThread":
            found._runner.get_model().register_forward_pre_hook(lost)

signal.signal(signal.SIGUSR1, break_the_model)
"""


def test_an_instance_whose_engine_dies_comes_back_as_another_incarnation(
    checkpoint: Path, reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Canaries far apart: it is the request that meets the fault.
    settings = InstanceSettings(
        model=checkpoint, token=TOKEN, engine_id="mortal", epoch=0, kv_blocks=80, block_size=16, canary_s=600
    )
    question = Question("Are you there?")

    async def run(supervisor: Supervisor) -> None:
        (one,) = supervisor.instances
        client = Client(one)
        await client.healthy()
        first = (await client.status()).address.epoch
        assert (await client.generate(request(question))).tokens == reference.answer(question, 24)
        assert one.pid
        os.kill(one.pid, signal.SIGUSR1)
        assert await failure_of(client) in ("engine_failed", "cut off")

        async def is_buried() -> bool:
            return one.restarts == 1

        await until(is_buried, START_SECONDS)
        assert one.ended_with == ENGINE_DIED
        await client.healthy()
        status = await client.status()
        assert status.address.epoch > first
        assert status.health.ok
        assert (await client.generate(request(question))).tokens == reference.answer(question, 24)
        assert one.restarts == 1

    async def failure_of(client: Client) -> str:
        try:
            found = await client.generate(request(question))
        except Refused as refused:
            assert refused.failure.retryable
            return refused.failure.code
        except httpx.TransportError:
            return "cut off"
        assert found.last.error, "the fault was not met"
        return found.last.error.code

    with Supervisor([settings], tmp_path / "logs") as supervisor:
        asyncio.run(run(supervisor))
