"""An engine held to a share of one core, so that several on few cores keep out of each other's way.

Without it, instances that share cores are as fast as the others let them be, and what is measured is the machine's
scheduler. With it each is a slow device of its own: a step is over, and its tokens are told, when the processor time
that it took has become the given share of the time that has passed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from engine.lmdeploy_patches.hooks import function
from engine.lmdeploy_patches.in_flight import find_step

FOLLOWS_S = 0.02
"""A step that begins so soon after the one before is taken to have begun at its end: neither what the engine's loop
does between two steps nor how late a sleep ended adds up."""

_AGENT = "lmdeploy.pytorch.engine.model_agent.agent:BaseModelAgent"


def hold_to_share(engine: Any, share: float, threads: int) -> None:
    """Pace the steps of one engine, prefill and decode alike; before its loop starts.

    Steps alone wait: HTTP, health and transfers go on meanwhile, as they do on the host of a device. Where the step is
    computed by one thread, their processor time is not counted; where it has several, that of the whole process is,
    as far as it falls into the step's computing.

    Args:
        share: of one core, above 0 and at most 1.
        threads: that compute a step.

    Raises:
        LMDeployChanged: the step, or where its output goes, is not what it was.
    """
    find_step(f"{_AGENT}._async_step")
    function(f"{_AGENT}._push_output", ["self", "output"])
    agent = engine.executor.model_agent
    step, push = agent._async_step, agent._push_output
    held: list[Any] = []
    due = 0.0
    processor_time = time.thread_time if threads == 1 else time.process_time

    async def paced(*args: Any, **kwargs: Any) -> Any:
        nonlocal due
        now, processor = time.monotonic(), processor_time()
        began = due if now - due < FOLLOWS_S else now
        try:
            done = await step(*args, **kwargs)
            due = began + (processor_time() - processor) / share
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            return done
        finally:
            for output in held:
                push(output)
            held.clear()

    agent._push_output = held.append
    agent._async_step = paced
