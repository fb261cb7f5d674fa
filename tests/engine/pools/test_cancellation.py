"""What is cancelled stays cancelled, whatever comes at the same moment."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.pools.settings import InstanceSettings

if importlib.util.find_spec("lmdeploy") is None:
    pytest.skip("lmdeploy is not installed (make engine)", allow_module_level=True)

from engine.pools.engine_thread import EngineThread


@pytest.mark.parametrize("turns", range(6))
def test_a_sequence_that_is_cancelled_as_its_step_arrives_is_cancelled(tmp_path: Path, turns: int) -> None:
    """Else a finished prefill would keep its blocks, and nobody would know of it."""
    engine = EngineThread(InstanceSettings(model=tmp_path, token="t", engine_id="one", epoch=0), lambda pixels: pixels)

    async def run() -> None:
        response = SimpleNamespace(event=asyncio.Event())
        waiting = asyncio.create_task(engine._arrival(response))
        for _ in range(3):
            await asyncio.sleep(0)
        response.event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        accepted = waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() == accepted

    asyncio.run(run())
