"""A prefill and a decode instance over a tiny random Qwen2-VL, started once for all tests here."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

# Not imported here: what LMDeploy does to its process at import is not for the tests' own.
if importlib.util.find_spec("lmdeploy") is None:
    pytest.skip("lmdeploy is not installed (make engine)", allow_module_level=True)

from engine.pools.settings import InstanceSettings
from engine.pools.supervisor import Supervisor
from engine.random_checkpoint import write_checkpoint
from engine.role import Role
from tests.engine.pools.client import Client
from tests.engine.pools.reference import Reference

TOKEN = "a secret of the tests"
LEASE_SECONDS = 6.0


@dataclass
class Pools:
    """One prefill instance, one decode instance, and who keeps them alive."""

    supervisor: Supervisor
    prefill: Client
    decode: Client

    async def hold_nothing(self) -> None:
        await self.prefill.holds_nothing()
        await self.decode.holds_nothing()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder, "qwen2-vl")
    return folder


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint)


@pytest.fixture(scope="session")
def pools(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pools]:
    common = InstanceSettings(
        model=checkpoint,
        token=TOKEN,
        engine_id="",
        epoch=0,
        kv_blocks=160,
        block_size=16,
        session_len=640,
        max_batch_size=8,
        max_prefill_tokens=256,
        lease_s=LEASE_SECONDS,
        canary_s=2.0,
    )
    settings = [
        replace(common, engine_id="prefill", role=Role.PREFILL),
        # A mirror of its KV in host memory, as a device has it.
        replace(common, engine_id="decode", role=Role.DECODE, staged=True),
    ]
    logs = tmp_path_factory.mktemp("logs")
    with Supervisor(settings, logs) as supervisor:
        made = Pools(supervisor, *(Client(one) for one in supervisor.instances))
        try:
            asyncio.run(_all_healthy(made))
        except BaseException:
            for path in logs.iterdir():
                print(path.name, path.read_text("utf-8")[-3000:])
            raise
        yield made


async def _all_healthy(pools: Pools) -> None:
    await asyncio.gather(pools.prefill.healthy(), pools.decode.healthy())
