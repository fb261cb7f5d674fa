"""The requests that an instance is serving: admitted within bounds, each with a deadline, each can be aborted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.pools.errors import Aborted, DeadlineExceeded, DuplicateRequest, Overloaded, PoolError
from engine.pools.messages import Generate
from engine.pools.roles import SERVES
from engine.pools.sequence import Answer, Step

WORK = tuple(SERVES)


@dataclass(slots=True, eq=False)
class Active:
    """One request at work.

    Attributes:
        work: prefill, decode or generate.
        deadline: instant of `time.monotonic()`.
        left: tokens that it may still generate.
    """

    request: Generate
    work: str
    deadline: float
    left: int
    answer: Answer | None = None
    _stopped: PoolError | None = None

    def check(self) -> None:
        """Raise the reason if it is to stop."""
        if self._stopped:
            raise self._stopped
        if time.monotonic() >= self.deadline:
            raise self._late()

    def follow(self, answer: Answer) -> Answer:
        """From now on this is what a stop stops."""
        self.answer = answer
        if self._stopped:
            answer.cancel(self._stopped)
        return answer

    async def next(self, until: float | None = None) -> Step:
        """The next step of the answer.

        Args:
            until: instant before the deadline after which TimeoutError is raised and nothing is stopped.

        Raises:
            DeadlineExceeded, and whatever went wrong.
        """
        assert self.answer is not None
        self.check()
        limit = self.deadline if until is None else min(self.deadline, until)
        try:
            async with asyncio.timeout(max(0.0, limit - time.monotonic())):
                step = await self.answer.next()
        except TimeoutError:
            self.check()
            # A clock may ring a little early.
            raise self._late() if limit == self.deadline else TimeoutError from None
        self.left -= len(step.token_ids)
        return step

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"The request was not finished within {self.request.deadline_s:g} seconds.")

    def stop(self, why: PoolError) -> None:
        """End it; whoever waits for it gets the reason. Twice is harmless."""
        if self._stopped is None:
            self._stopped = why
            if self.answer:
                self.answer.cancel(why)


class Requests:
    """All active requests. Lives in the event loop of the HTTP server.

    Args:
        most: admitted at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._active: dict[str, Active] = {}
        self._ended = asyncio.Event()

    def __len__(self) -> int:
        return len(self._active)

    @property
    def remaining_tokens(self) -> int:
        return sum(max(0, active.left) for active in self._active.values())

    @contextmanager
    def admit(self, request: Generate, work: str, failed: Callable[[BaseException], None]) -> Iterator[Active]:
        """Within this, the request is active; at the end, what it still computes is stopped.

        Args:
            work: prefill, decode or generate.
            failed: told what ended it, if it was an exception.

        Raises:
            Overloaded, DuplicateRequest
        """
        if request.request_id in self._active:
            raise DuplicateRequest(f"A request {request.request_id!r} is being served.")
        if len(self._active) >= self._most:
            raise Overloaded(f"{self._most} requests are being served already.")
        now = time.monotonic()
        active = Active(request, work, now + request.deadline_s, request.sampling.max_tokens)
        self._active[request.request_id] = active
        try:
            yield active
        except BaseException as error:
            failed(error)
            raise
        finally:
            del self._active[request.request_id]
            if active.answer:
                active.answer.cancel()
            self._ended.set()

    def abort(self, request_id: str) -> bool:
        """True if it was active."""
        active = self._active.get(request_id)
        if active:
            active.stop(Aborted("The request was aborted."))
        return active is not None

    async def drain(self, seconds: float, why: PoolError, work: Collection[str] = WORK) -> None:
        """Wait for all of these kinds of work to end; what has not by then is stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._none_of(work)
        except TimeoutError:
            self.stop_all(why, work)
            await self._none_of(work)

    def stop_all(self, why: PoolError, work: Collection[str] = WORK) -> None:
        for active in list(self._active.values()):
            if active.work in work:
                active.stop(why)

    async def _none_of(self, work: Collection[str]) -> None:
        while any(active.work in work for active in self._active.values()):
            self._ended.clear()
            await self._ended.wait()
