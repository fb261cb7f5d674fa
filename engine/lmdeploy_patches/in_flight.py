"""Steps that have been sent to the model and have not come back: which sequences and blocks they touch.

LMDeploy prepares a step before it knows what the one before has given. Three things follow that it leaves open:

- a sequence that ends, or is aborted, may be in a step that still writes into blocks which are free by then. On one
  device later steps come after it; a pull from another engine does not, so it has to wait (`InFlight.wait_for`);
- a sequence whose last token is under way would be computed once more in vain. With a prefill that is one token long,
  that is a whole step for each request, and it writes into blocks that are leased to a reader by then;
- the model may go on with the next step before anybody is told what this one gave, which on a CPU keeps a finished
  prefill back for as long as the next one takes.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from engine.lmdeploy_patches.hooks import function, replace

_MAKER = "lmdeploy.pytorch.engine.inputs_maker:InputsMakerAsync"
_AGENT = "lmdeploy.pytorch.engine.model_agent.agent:BaseModelAgent"
_TURNS = 6
"""Turns of the event loop from a step's output to the listener of its request."""


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    sequences: frozenset[int]
    blocks: frozenset[int]
    tokens: tuple[tuple[int, int], ...]
    sent: float


class InFlight:
    """The steps under way of one engine. Lives in its event loop.

    Attributes:
        computed: seconds of steps, by session: its share of each by tokens, what a step waited for others left out.
    """

    def __init__(self, scheduler: Any) -> None:
        self.computed: dict[int, float] = {}
        self._came_back = 0.0
        self._scheduler = scheduler
        self._steps: deque[_Step] = deque()
        self._back = asyncio.Event()

    def sent(self, running: list[Any]) -> None:
        """A step with these sequences is about to be sent."""
        tables = self._scheduler.get_block_tables(running)
        blocks = frozenset(block for table in tables for block in table.tolist())
        tokens = tuple((sequence.session_id, max(1, int(sequence.num_token_ids))) for sequence in running)
        self._steps.append(_Step(frozenset(s.seq_id for s in running), blocks, tokens, time.monotonic()))

    def came_back(self) -> None:
        """The oldest step has given its output."""
        now = time.monotonic()
        if self._steps:
            step = self._steps.popleft()
            # Steps are sent ahead and computed one after the other.
            seconds = now - max(step.sent, self._came_back)
            every = sum(count for _, count in step.tokens)
            for session, count in step.tokens:
                self.computed[session] = self.computed.get(session, 0.0) + seconds * count / every
        self._came_back = now
        self._back.set()

    def has_last_token_of(self, sequence: Any) -> bool:
        """True if a step under way gives the last token that the sequence may have."""
        left = sequence.sampling_param.max_new_tokens - sequence.num_new_tokens
        return left <= 1 and any(sequence.seq_id in step.sequences for step in self._steps)

    async def wait_for(self, blocks: set[int]) -> None:
        """Return when no step that is under way now can write into these blocks."""
        for step in list(self._steps):
            if not step.blocks.isdisjoint(blocks):
                while step in self._steps:
                    self._back.clear()
                    await self._back.wait()


def install_in_flight() -> None:
    """Replace the hooks. They do something only for engines that are given to `track`. Raises LMDeployChanged."""
    _note_what_is_sent()
    _leave_out_what_is_ending()
    _tell_before_the_next_step()


def track(engine: Any) -> InFlight:
    """Follow an engine's steps; before its loop starts."""
    function("lmdeploy.pytorch.engine.executor.uni_executor:UniExecutor.get_output_async", ["self", "dp_rank"])
    in_flight = engine.scheduler.in_flight = InFlight(engine.scheduler)
    get_output = engine.executor.get_output_async

    async def noted(*args: Any, **kwargs: Any) -> Any:
        output = await get_output(*args, **kwargs)
        in_flight.came_back()
        return output

    engine.executor.get_output_async = noted
    return in_flight


def _note_what_is_sent() -> None:
    hook = f"{_MAKER}._make_forward_inputs"
    original = function(hook, ["self", "prefill", "enable_empty"])

    @functools.wraps(original)
    def noted(self: Any, prefill: bool, enable_empty: bool = False) -> Any:
        inputs = original(self, prefill, enable_empty)
        in_flight = getattr(self.scheduler, "in_flight", None)
        if inputs is not None and in_flight is not None:
            in_flight.sent(inputs["running"])
        return inputs

    replace(hook, noted)


def _leave_out_what_is_ending() -> None:
    from lmdeploy.pytorch.messages import MessageStatus

    hook = f"{_MAKER}.create_model_inputs_delta"
    original = function(hook, ["self"])
    scheduler_hook = "lmdeploy.pytorch.paging.scheduler:Scheduler.schedule_running"
    schedule = function(scheduler_hook, ["self", "running", "num_required_tokens", "prealloc_size"])

    @functools.wraps(schedule)
    def without_ending(self: Any, running: list[Any], num_required_tokens: int = 1, prealloc_size: int = 1) -> Any:
        in_flight = getattr(self, "in_flight", None)
        ending = [in_flight is not None and in_flight.has_last_token_of(sequence) for sequence in running]
        going_on = [sequence for sequence, ends in zip(running, ending, strict=True) if not ends]
        valid = iter(schedule(self, going_on, num_required_tokens, prealloc_size) if going_on else ())
        return [not ends and next(valid) for ends in ending]

    @functools.wraps(original)
    def kept(self: Any) -> Any:
        delta, valid, invalid = original(self)
        in_flight = getattr(self.scheduler, "in_flight", None)
        if in_flight is not None:
            # What is left out here is pushed out of memory next: not what is ending, and not what has ended and is
            # kept for a reader, for which LMDeploy has no such step and would stop altogether.
            running = [sequence for sequence in invalid if sequence.status is MessageStatus.RUNNING]
            invalid = [sequence for sequence in running if not in_flight.has_last_token_of(sequence)]
        return delta, valid, invalid

    replace(scheduler_hook, without_ending)
    replace(hook, kept)


def _tell_before_the_next_step() -> None:
    hook = f"{_AGENT}._async_step"
    original = find_step(hook)

    @functools.wraps(original)
    async def after_telling(self: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return await original(self, *args, **kwargs)

    replace(hook, after_telling)


def find_step(hook: str) -> Any:
    """The coroutine that computes one step."""
    return function(
        hook,
        [
            "self",
            "inputs",
            "delta",
            "swap_in_map",
            "swap_out_map",
            "sampling_inputs",
            "stopping_criteria",
            "return_logits",
            "return_routed_experts",
            "return_ce_loss",
            "extra_inputs",
            "cache_inputs",
            "kv_connector_metadata",
        ],
    )
