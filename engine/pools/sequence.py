"""What is asked of the engine's thread, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.pools.errors import Aborted, PoolError
from engine.pools.prompt import Prompt

if TYPE_CHECKING:
    from engine.pools.migration_backend import Pull


@dataclass(frozen=True, slots=True)
class Job:
    """One sequence for the engine.

    Attributes:
        prompt: may end with tokens of the answer.
        config: LMDeploy's GenerationConfig.
        keep_cache: leave its blocks in place at the end, for `end_session`.
        pull: take the KV of all but the last token from a peer.
        first_token: of the answer, where the KV is pulled; it comes back as the first token.
        patient: let what is being decoded go on between this prompt and those before it.
    """

    prompt: Prompt
    config: Any
    keep_cache: bool = False
    pull: Pull | None = None
    first_token: int | None = None
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What the engine has to say about a sequence.

    Attributes:
        token_ids: new ones.
        finished: there will be no more: it ended by itself, or has as many as it may have.
        blocks: of the KV cache, in the order of the tokens, if they are kept.
        computed_s: with the last one: seconds of the engine's steps that were this sequence's; None if not known.
        error: it has failed; nothing follows.
    """

    token_ids: tuple[int, ...] = ()
    finished: bool = False
    blocks: tuple[int, ...] = ()
    cached_tokens: int = 0
    computed_s: float | None = None
    error: Exception | None = None


class Answer:
    """The steps of one sequence, in the event loop that asked for them.

    Args:
        stop: called with the session's id if it is cancelled.
    """

    def __init__(self, session_id: int, stop: Callable[[int], None]) -> None:
        self.session_id = session_id
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._steps: asyncio.Queue[Step] = asyncio.Queue()
        self._closed = False

    async def next(self) -> Step:
        """The next step. Raises what went wrong instead of giving a step with an error."""
        step = await self._steps.get()
        if step.error:
            raise step.error
        return step

    def cancel(self, why: PoolError | None = None) -> None:
        """Stop it and free its blocks; whoever waits for a step gets the reason. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._steps.put_nowait(Step(error=why or Aborted("The request was aborted.")))
        self._stop(self.session_id)

    def push(self, step: Step) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._steps.put_nowait, step)
