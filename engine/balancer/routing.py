"""Where one request goes: which waits for prefill first, and which decode instance takes it."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from engine.balancer.costs import Costs

PATIENCE = 4.0
"""Seconds of queueing that one second of prefill work is worth: how far short requests overtake long ones."""

SAMPLE = 16
"""Decode instances looked at for one request, at most: with many, a sample is as good and does not cost time."""


class Waiting(Protocol):
    """A request in the prefill queue."""

    since: float
    prefill_s: float
    tokens: int


T = TypeVar("T", bound=Waiting)


class PrefillQueue(Generic[T]):
    """Least (arrival + PATIENCE * work) first: a giant prompt does not block small ones, and none starves.

    A request that arrives more than PATIENCE * work later than a giant one comes after it, so what can overtake is
    bounded. `since` is when the caller began to wait: for a crop that is its page, so that pages begun are finished
    before others are begun.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, request: T) -> None:
        """Queue `request`."""
        key = request.since + PATIENCE * request.prefill_s
        heapq.heappush(self._heap, (key, next(self._order), request))
        self.tokens += request.tokens

    def pop_batch(self, tokens: int) -> list[T]:
        """The next requests, up to `tokens` prompt tokens together; one that is longer goes alone."""
        batch: list[T] = []
        room = tokens
        while self._heap and (not batch or self._heap[0][2].tokens <= room):
            request = heapq.heappop(self._heap)[2]
            batch.append(request)
            room -= request.tokens
        self.tokens -= sum(request.tokens for request in batch)
        return batch


class DecodeChoice(Protocol):
    """A decode instance as the router sees it."""

    running: int
    kv_tokens: float
    decode_speed: float


C = TypeVar("C", bound=DecodeChoice)


def choose_decode(
    candidates: Sequence[C], prompt_tokens: float, output: float, costs: Costs, salt: int, hits: dict[Any, float] | None
) -> C | None:
    """The instance where the request is predicted to finish first; None if none has a free slot and free blocks.

    Args:
        candidates: instances that admit decode work.
        prompt_tokens: length of the prompt.
        output: predicted tokens to generate.
        salt: any number that differs from request to request; says where the sample begins.
        hits: for instances that hold part of the prompt's KV already, the seconds of transfer that this saves.
    """
    count = len(candidates)
    looked_at: Sequence[C] = candidates
    if count > SAMPLE:
        stride = max(1, count // SAMPLE)
        looked_at = [candidates[(salt + k * stride) % count] for k in range(SAMPLE)]
    best, least = None, float("inf")
    room, slots = costs.kv_capacity_tokens - prompt_tokens - output, costs.max_sequences
    per_token, per_sequence, fixed = costs.step_kv_token_s, costs.step_sequence_s, costs.step_s
    for instance in looked_at:
        running, kv = instance.running, instance.kv_tokens
        if running >= slots or (kv > room and running):
            continue
        finish = output * (fixed + per_token * (kv + prompt_tokens) + per_sequence * running) / instance.decode_speed
        if hits:
            finish -= hits.get(instance, 0.0)
        if finish < least:
            best, least = instance, finish
    if best is None and count > SAMPLE and looked_at is not candidates:
        return next((i for i in candidates if i.running < slots and (i.kv_tokens <= room or not i.running)), None)
    return best
