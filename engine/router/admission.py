"""Who waits and whose turn it is: bounded, by priority and age, short prompts before long ones, nobody starved."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.balancer.load import Load
from engine.balancer.routing import PrefillQueue
from engine.router.errors import DeadlineExceeded, NoInstance, QueueFull
from engine.router.placement import Placement
from engine.router.ticket import Ticket

PRIORITY_S = 10.0
"""Seconds of waiting that one step of priority is worth. A bound, so that low priorities do not starve."""

MOST_STEPS = 360
"""Steps that count, in either direction."""

STARTS = 64
"""Recent starts that the time to wait is estimated from."""


class Watcher(Protocol):
    """Who wants to know what waits: the balancer."""

    def arrived(self, load: Load, again: bool) -> None: ...

    def started(self, load: Load) -> None: ...

    def withdrawn(self, load: Load) -> None: ...


class Admission:
    """Queues by model. A request that waits for its turn either gets its places, or ends with a typed error."""

    def __init__(
        self,
        limit: int,
        instance_wait_s: float,
        place: Callable[[Ticket, float], Placement | None],
        is_served: Callable[[str, float], bool],
        watcher: Watcher | None = None,
    ) -> None:
        """Args:
        limit: requests that may wait.
        instance_wait_s: seconds that a request waits while no instance takes any.
        place: takes places for a request, if there are any.
        is_served: whether any instance takes requests for a model.
        watcher: told who comes and goes.
        """
        self._watcher = watcher
        self._limit = limit
        self._instance_wait_s = instance_wait_s
        self._place = place
        self._is_served = is_served
        self._queues: dict[str, PrefillQueue[Ticket]] = {}
        self._turns: dict[Ticket, asyncio.Future[Placement]] = {}
        self._work: dict[str, float] = {}
        self._served_at: dict[str, float] = {}
        self._started: deque[float] = deque(maxlen=STARTS)

    def __len__(self) -> int:
        return len(self._turns)

    def waiting(self) -> list[Ticket]:
        """Requests that wait, in no order."""
        return list(self._turns)

    def retry_after_s(self) -> float:
        """Seconds until there may be room again."""
        now = asyncio.get_running_loop().time()
        if len(self._started) < 2:
            return 1.0
        rate = len(self._started) / max(0.1, now - self._started[0])
        return min(60.0, max(1.0, 0.25 * len(self) / rate))

    async def turn(self, ticket: Ticket) -> Placement:
        """Wait until instances have room for the request; its places are taken then.

        Raises:
            QueueFull: too many wait. Not for one that comes back after a failure.
            DeadlineExceeded: its time is up.
            NoInstance: nobody serves its model, and nobody came.
        """
        loop = asyncio.get_running_loop()
        if ticket.attempt == 0:
            if len(self._turns) >= self._limit:
                raise QueueFull(f"{self._limit} requests wait already", self.retry_after_s())
            steps = max(-MOST_STEPS, min(MOST_STEPS, ticket.priority))
            # What a caller has in the queue already counts as having come later: callers take turns.
            ticket.since = ticket.arrived + steps * PRIORITY_S + self._work.get(ticket.caller, 0.0)
        turn: asyncio.Future[Placement] = loop.create_future()
        self._turns[ticket] = turn
        if self._watcher:
            self._watcher.arrived(ticket.load, again=ticket.attempt > 0)
        self._work[ticket.caller] = self._work.get(ticket.caller, 0.0) + ticket.prefill_s
        self._served_at.setdefault(ticket.model, loop.time())
        self._queues.setdefault(ticket.model, PrefillQueue()).push(ticket)
        self.pump()
        try:
            async with asyncio.timeout_at(ticket.deadline):
                placement = await asyncio.shield(turn)
        except TimeoutError:
            self._give_back(turn, ticket)
            raise DeadlineExceeded("the request's time was up before its turn") from None
        except BaseException:
            self._give_back(turn, ticket)
            raise
        finally:
            self._forget(ticket)
        self._started.append(loop.time())
        if self._watcher:
            self._watcher.started(ticket.load)
        return placement

    def pump(self) -> None:
        """Give turns as long as there is room. Call it whenever room may have come."""
        now = asyncio.get_running_loop().time()
        for queue in self._queues.values():
            while queue:
                (ticket,) = queue.pop_batch(0)
                turn = self._turns.get(ticket)
                if turn is None or turn.done():
                    continue
                placement = self._place(ticket, now)
                if placement is None:
                    # Nobody overtakes the first: what keeps it waiting must come free for it, not for later ones.
                    queue.push(ticket)
                    break
                turn.set_result(placement)

    def tick(self) -> None:
        """Give turns, and end the waiting for models that nobody serves. Call it a few times a second."""
        self.pump()
        now = asyncio.get_running_loop().time()
        for model in list(self._queues):
            self._sweep(self._queues[model])
            if self._is_served(model, now):
                self._served_at[model] = now
            elif now - self._served_at.get(model, now) > self._instance_wait_s:
                for ticket, turn in self._turns.items():
                    if ticket.model == model and not turn.done():
                        turn.set_exception(NoInstance(f"no instance serves {model} at the moment", 5.0))
                del self._queues[model]
                del self._served_at[model]

    def _sweep(self, queue: PrefillQueue[Ticket]) -> None:
        """Requests that left stay in the queue until they are first; not too many of them."""
        if len(queue) > 64 + 2 * len(self._turns):
            for ticket in queue.pop_batch(sys.maxsize):
                if ticket in self._turns:
                    queue.push(ticket)

    def _forget(self, ticket: Ticket) -> None:
        self._turns.pop(ticket, None)
        left = self._work.get(ticket.caller, 0.0) - ticket.prefill_s
        if left > 1e-9:
            self._work[ticket.caller] = left
        else:
            self._work.pop(ticket.caller, None)

    def _give_back(self, turn: asyncio.Future[Placement], ticket: Ticket) -> None:
        """The request leaves; perhaps in the very moment in which its turn came."""
        if self._watcher:
            self._watcher.withdrawn(ticket.load)
        if not turn.done():
            turn.cancel()
        elif not turn.cancelled() and turn.exception() is None:
            turn.result().close()
            self.pump()
