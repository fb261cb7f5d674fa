"""One request's life: wait for a turn, prefill, let decode pull, stream, release; and what if any of it fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from engine.pools.messages import Chunk, Decode, Generate, Prefilled
from engine.pools.roles import SERVES
from engine.router.admission import Admission
from engine.router.answer import Answer
from engine.router.errors import (
    AnswerInterrupted,
    DeadlineExceeded,
    EngineFailed,
    InstanceLost,
    InternalError,
    RouterError,
    code_of,
)
from engine.router.errors import is_retryable as retryable
from engine.router.estimate import Estimate
from engine.router.instance_client import InstanceClient
from engine.router.links import Links
from engine.router.metrics import Metrics
from engine.router.placement import Mode, Placement, Placer
from engine.router.registry import Instance
from engine.router.settings import RouterSettings
from engine.router.ticket import Ticket

log = logging.getLogger(__name__)

PAUSE_S = 0.05
"""Seconds before a second try; doubled with each further one."""


@dataclass(slots=True)
class Progress:
    """What became known of a request while it was served.

    Attributes:
        prompt_token_ids: if its prefill told.
        prompt_tokens, cached_tokens, image_tokens: of the prompt.
        began, first_at, last_at: when it arrived, when its first and its last token came; `time.monotonic`, because
            uvloop's clock stands still within a turn of the loop.
        stepped_at, stepped: when the first token of a decode step came, and how many tokens there were then. The wait
            before it is for the KV and for a place in the batch, not for a step.
        mode: how it was served at last.
    """

    prompt_token_ids: tuple[int, ...] | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    image_tokens: int = 0
    began: float = field(default_factory=time.monotonic)
    first_at: float | None = None
    last_at: float | None = None
    stepped_at: float | None = None
    stepped: int = 0
    mode: Mode = Mode.SPLIT
    answer: Answer = field(default_factory=Answer)


class Serving:
    """Serves requests on whatever instances there are."""

    def __init__(
        self,
        settings: RouterSettings,
        admission: Admission,
        placer: Placer,
        client: InstanceClient,
        links: Links,
        estimate: Estimate,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._admission = admission
        self._placer = placer
        self._client = client
        self._links = links
        self._estimate = estimate
        self._metrics = metrics
        self.live = 0

    async def answer(
        self, ticket: Ticket, progress: Progress, may_restart: bool = False
    ) -> AsyncGenerator[Chunk, None]:
        """The chunks of the answer; the last one has a `finish_reason`.

        Closing the generator, or cancelling what waits for it, frees the request everywhere.

        Args:
            progress: filled while the answer comes.
            may_restart: nobody has seen any of it before the end, so that an answer drawn at random may be begun
                anew; `progress.answer` then loses what it had.

        Raises:
            RouterError: in the time that the request has, whatever happens to instances.
        """
        self.live += 1
        code = "cancelled"
        try:
            async with aclosing(self._with_retries(ticket, progress, may_restart)) as chunks:
                async for chunk in chunks:
                    if chunk.finish_reason:
                        code = "ok"
                    yield chunk
        except RouterError as error:
            code = code_of(error)
            raise
        except Exception as error:
            code = InternalError.code
            log.exception("a request failed")
            raise InternalError(f"{type(error).__name__} in the router") from error
        finally:
            self.live -= 1
            self._account(ticket, progress, code)

    async def _with_retries(self, ticket: Ticket, progress: Progress, may_restart: bool) -> AsyncGenerator[Chunk, None]:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with aclosing(self._try(ticket, progress)) as chunks:
                    async for chunk in chunks:
                        if chunk.token_ids:
                            progress.last_at = time.monotonic()
                            progress.first_at = progress.first_at or progress.last_at
                        new = progress.answer.new_of(chunk)
                        if new is not None:
                            yield new
                return
            except RouterError as error:
                failure = error
            if loop.time() >= ticket.deadline - 0.01:
                raise DeadlineExceeded("the request's time was up before its answer was complete") from failure
            ticket.attempt += 1
            if not retryable(failure) or ticket.attempt >= self._settings.attempts or _is_final(failure):
                raise failure
            if progress.answer.tokens and not ticket.greedy:
                if not may_restart:
                    raise AnswerInterrupted(
                        "an instance was lost in the middle of an answer whose tokens are drawn at random"
                    ) from failure
                progress.answer = Answer()
            progress.answer.repeat()
            await asyncio.sleep(min(PAUSE_S * 2 ** (ticket.attempt - 1), ticket.left(loop.time())))

    async def _try(self, ticket: Ticket, progress: Progress) -> AsyncGenerator[Chunk, None]:
        loop = asyncio.get_running_loop()
        queued = loop.time()
        placement = await self._admission.turn(ticket)
        try:
            self._metrics.queue_wait.observe(loop.time() - queued)
            self._metrics.placed.labels(placement.mode).inc()
            self._metrics.prefix_hit.observe(placement.hit)
            progress.mode = placement.mode
            request = ticket.request.model_copy(
                update={
                    # Another name for each try: a late abort of one must not end the next on the same instance.
                    "request_id": f"{ticket.request.request_id}-{ticket.attempt}",
                    "deadline_s": ticket.left(loop.time()),
                }
            )
            serve = self._split if placement.mode is Mode.SPLIT else self._alone
            async with aclosing(serve(ticket, request, placement, progress)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            placement.close()
            self._admission.pump()

    async def _split(
        self, ticket: Ticket, request: Generate, placement: Placement, progress: Progress
    ) -> AsyncGenerator[Chunk, None]:
        prefilled = await self._prefill(ticket, request, placement)
        try:
            progress.prompt_token_ids = prefilled.prompt_token_ids
            progress.prompt_tokens = len(prefilled.prompt_token_ids)
            progress.image_tokens = sum(image.tokens for image in prefilled.images)
            self._note_usage(progress, prefilled.first)
            placement.prefilled()
            if prefilled.kv is None:
                placement.pulled()
            self._admission.pump()
            yield prefilled.first
            if prefilled.first.finish_reason or prefilled.kv is None:
                return
            async with aclosing(self._decode(ticket, request, placement, prefilled, progress)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            if placement.is_held():
                placement.pulled()
                self._client.release(placement.prefill, request.request_id)

    async def _prefill(self, ticket: Ticket, request: Generate, placement: Placement) -> Prefilled:
        loop = asyncio.get_running_loop()
        instance, began = placement.prefill, loop.time()
        over = False
        try:
            prefilled = await self._client.prefill(instance, _for(instance, request, "prefill"), ticket.left(began))
            over = True
        except RouterError as error:
            self._blame(instance, ticket, error, "prefill")
            raise
        finally:
            if not over:
                self._client.abort(instance, request.request_id)
        instance.succeeded()
        instance.has_prefilled(ticket.prefixes)
        self._metrics.prefill.observe(loop.time() - began)
        if not instance.running:
            # What decode steps took in between is not the prompt's.
            self._estimate.learn_prefill(
                self._estimate.load(ticket.visual, ticket.text, 0.0, placement.hit), prefilled.prefill_s
            )
        images = sum(image.tokens for image in prefilled.images)
        self._estimate.learn_prompt(ticket.text_bytes, len(prefilled.prompt_token_ids) - images)
        return prefilled

    async def _decode(
        self, ticket: Ticket, request: Generate, placement: Placement, prefilled: Prefilled, progress: Progress
    ) -> AsyncGenerator[Chunk, None]:
        loop = asyncio.get_running_loop()
        progress.stepped_at = None
        while True:
            instance = placement.decode
            left = ticket.left(loop.time())
            body = Decode(
                request=_for(instance, request, "decode"),
                prefilled=prefilled,
                source=placement.prefill.address,
                pull_deadline_s=min(left, self._settings.pull_deadline_s),
            )
            first_s = min(left, self._settings.pull_deadline_s + self._settings.stall_s)
            over = began = False
            try:
                stream = self._client.stream(
                    instance, "/v1/decode", body, first_s, self._settings.stall_s, ticket.deadline
                )
                async with aclosing(stream) as chunks:
                    async for chunk in chunks:
                        if not began:
                            began = True
                            self._pulled(placement, request, chunk)
                        over = chunk.finish_reason is not None
                        self._note_usage(progress, chunk)
                        yield chunk
                        if chunk.token_ids and progress.stepped_at is None:
                            progress.stepped_at, progress.stepped = progress.last_at, len(progress.answer.tokens)
                instance.succeeded()
                self._learn_step(placement, progress)
                return
            except RouterError as error:
                self._blame(instance, ticket, error, "decode")
                if began or not retryable(error) or placement.prefill.lost or loop.time() >= ticket.deadline:
                    raise
                other = self._placer.another_decode(placement, loop.time())
                if other is None:
                    raise
            finally:
                if not over:
                    self._client.abort(instance, request.request_id)
            placement.move(other)

    async def _alone(
        self, ticket: Ticket, request: Generate, placement: Placement, progress: Progress
    ) -> AsyncGenerator[Chunk, None]:
        instance = placement.decode
        left = ticket.left(asyncio.get_running_loop().time())
        over = began = False
        try:
            stream = self._client.stream(
                instance, "/v1/generate", request, left, self._settings.stall_s, ticket.deadline
            )
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    if not began:
                        began = True
                        placement.prefilled()
                        instance.has_prefilled(ticket.prefixes)
                        self._admission.pump()
                    over = chunk.finish_reason is not None
                    self._note_usage(progress, chunk)
                    yield chunk
            instance.succeeded()
        except RouterError as error:
            self._blame(instance, ticket, error, "generate")
            raise
        finally:
            if not over:
                self._client.abort(instance, request.request_id)

    def _pulled(self, placement: Placement, request: Generate, chunk: Chunk) -> None:
        """The first chunk of a decode: its KV is there, by whatever way."""
        placement.pulled()
        self._client.release(placement.prefill, request.request_id)
        self._admission.pump()
        if chunk.fallback is not None:
            self._metrics.fallbacks.inc()
        if chunk.pull_bytes:
            self._metrics.kv_bytes.inc(chunk.pull_bytes)
        if chunk.pull_s:
            self._metrics.kv_seconds.inc(chunk.pull_s)
            self._metrics.pull.observe(chunk.pull_s)

    def _learn_step(self, placement: Placement, progress: Progress) -> None:
        """From an answer that has just ended: how far apart its tokens came, if its instance does nothing else."""
        if placement.decode.prefills or placement.decode.role_wanted:
            return
        steps = len(progress.answer.tokens) - progress.stepped
        if steps > 0 and progress.stepped_at is not None and progress.last_at is not None:
            seconds = (progress.last_at - progress.stepped_at) / steps
            decode = placement.decode
            kv_tokens = decode.kv_tokens * decode.decoding / max(1, decode.running)
            self._estimate.learn_step(max(1, decode.decoding), kv_tokens, seconds)

    def _note_usage(self, progress: Progress, chunk: Chunk) -> None:
        if chunk.usage:
            progress.prompt_tokens = chunk.usage.prompt_tokens
            progress.cached_tokens = max(progress.cached_tokens, chunk.usage.cached_tokens)
            progress.image_tokens = max(progress.image_tokens, chunk.usage.image_tokens)

    def _blame(self, instance: Instance, ticket: Ticket, error: RouterError, stage: str) -> None:
        """Remember who failed the request, unless it is its own deadline that ended the wait."""
        now = asyncio.get_running_loop().time()
        if now >= ticket.deadline - 0.01:
            return
        if isinstance(error, InstanceLost):
            instance.failed(now)
        if retryable(error):
            ticket.avoid.add((instance.id, instance.epoch))
            self._metrics.retries.labels(stage, code_of(error)).inc()

    def _account(self, ticket: Ticket, progress: Progress, code: str) -> None:
        self._metrics.requests.labels(code).inc()
        if code == "cancelled":
            self._metrics.aborted.inc()
        if progress.first_at is not None:
            self._metrics.ttft.labels(progress.mode).observe(progress.first_at - progress.began)
            self._metrics.prompt_tokens.inc(progress.prompt_tokens)
            self._metrics.cached_tokens.inc(progress.cached_tokens)
        count = len(progress.answer.tokens)
        self._metrics.output_tokens.inc(count)
        if count > 1 and progress.first_at is not None and progress.last_at is not None:
            self._metrics.tpot.labels(progress.mode).observe((progress.last_at - progress.first_at) / (count - 1))
        if code == "ok":
            most = ticket.request.sampling.max_tokens
            self._estimate.learn_output(progress.prompt_tokens or ticket.tokens, count, most)


def _for(instance: Instance, request: Generate, work: str) -> Generate:
    """The request as the instance takes it, whose role may not be there yet."""
    return request.model_copy(update={"early": instance.status.role not in SERVES[work]})


def _is_final(error: RouterError) -> bool:
    """Errors that say that waiting again would not help: the queue's own."""
    return not isinstance(error, InstanceLost | EngineFailed | AnswerInterrupted)
