"""Pools whose blocks differ in size exchange KV like others: it is repacked, and tokens stay the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.pools.settings import InstanceSettings
from engine.pools.supervisor import Supervisor
from engine.role import Role
from tests.engine.pools.client import Client, request
from tests.engine.pools.conftest import TOKEN, Pools
from tests.engine.pools.reference import Question, Reference, picture

TOKENS = 24
BEGINNING = "All of them begin like this, for more than the block of 64 tokens that the reader caches. "


@pytest.fixture(scope="module")
def unequal(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pools]:
    """16 tokens a block on one instance, 64 on the other; either can be the source."""
    small = InstanceSettings(
        model=checkpoint,
        token=TOKEN,
        engine_id="small",
        epoch=0,
        role=Role.HYBRID,
        kv_blocks=160,
        block_size=16,
        session_len=640,
        max_batch_size=8,
    )
    # With a mirror of its KV in host memory, as a device has it.
    large = replace(small, engine_id="large", kv_blocks=40, block_size=64, staged=True)
    with Supervisor([small, large], tmp_path_factory.mktemp("logs")) as supervisor:
        pools = Pools(supervisor, *(Client(one) for one in supervisor.instances))
        asyncio.run(_healthy(pools))
        yield pools


async def _healthy(pools: Pools) -> None:
    await asyncio.gather(pools.prefill.healthy(), pools.decode.healthy())


@pytest.mark.parametrize("way", ["16 to 64", "64 to 16"])
def test_tokens_are_those_of_transformers_with_kv_that_was_repacked(
    unequal: Pools, reference: Reference, way: str
) -> None:
    source, reader = unequal.prefill, unequal.decode
    if way == "64 to 16":
        source, reader = reader, source
    questions = [
        Question("x" * 3),
        Question("y" * 36, (picture(84, 56, 1),)),
        *(Question(BEGINNING + "z" * length, (picture(84, 84, 2),) * (length % 2)) for length in (1, 16, 47, 130)),
    ]

    async def one(question: Question) -> None:
        asked = request(question, TOKENS)
        found = await reader.decode(asked, await source.prefill(asked), (await source.status()).address)
        assert found.chunks[1].fallback is None
        assert found.tokens == reference.answer(question, TOKENS)

    async def run() -> None:
        before = (await reader.status()).counters
        # One after the other, so that the later ones find their beginning with the reader; then all at once.
        for question in questions:
            await one(question)
        await asyncio.gather(*(one(question) for question in questions))
        after = (await reader.status()).counters
        assert after["pulls_total"] - before["pulls_total"] == 2 * len(questions)
        assert after["pulled_bytes_total"] > before["pulled_bytes_total"]
        await unequal.hold_nothing()

    asyncio.run(run())
