"""An answer, token by token: from a prompt, or from the KV of one that another instance has computed.

If the KV cannot be pulled, the prompt is computed here. That costs time, never the request, and is said in the first
chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.interconnect.choose import Choice
from engine.interconnect.errors import InterconnectError, PeerLost, StaleEpoch
from engine.interconnect.leases import Lease
from engine.pools.answer_text import AnswerText
from engine.pools.errors import Aborted, BadRequest, DeadlineExceeded, Draining, EngineFailed, PoolError
from engine.pools.images import EncodedImage
from engine.pools.kv_leases import lease_for
from engine.pools.loaded import Loaded
from engine.pools.messages import Chunk, Decode, FinishReason, Generate, ImagePart, Prefilled
from engine.pools.prefill import note_prompt, usage_of
from engine.pools.prompt import Prompt, PromptImage
from engine.pools.requests import Active
from engine.pools.sampling import generation_config
from engine.pools.sequence import Job, Step

if TYPE_CHECKING:
    from engine.pools.migration_backend import Pull

RELEASE_SECONDS = 2.0


async def generate(loaded: Loaded, active: Active) -> AsyncIterator[Chunk]:
    """Compute a request whole. Raises PoolError."""
    request = active.request
    prompt = await asyncio.to_thread(loaded.builder.build, request, loaded.prompt_limit)
    active.check()
    text = _text(loaded, request, prompt)
    step = await _submit(loaded, active, prompt, prompt)
    note_prompt(loaded, request, prompt, step)
    async for chunk in _stream(loaded, active, prompt, text, step, Chunk()):
        yield chunk


async def decode(loaded: Loaded, active: Active, order: Decode) -> AsyncIterator[Chunk]:
    """Go on from a prefill's first token. Raises PoolError."""
    request, prefilled = order.request, order.prefilled
    prompt = _prompt(loaded, request, prefilled)
    text = _text(loaded, request, prompt)
    if text.push(prefilled.first.token_ids).finish_reason or not prefilled.first.token_ids or prefilled.kv is None:
        raise BadRequest("There is nothing to decode after this prefill.")
    pulled = _Pulled()
    try:
        step = await _pull(loaded, active, order, prompt, pulled)
        first = Chunk(pull_s=pulled.seconds, pull_bytes=pulled.moved)
        loaded.counters.add("pulls_total")
        loaded.counters.add("pulled_bytes_total", pulled.moved)
        loaded.counters.add("pull_seconds_total", pulled.seconds)
        # The first token comes back with the first step.
        step = replace(step, token_ids=step.token_ids[1:])
    except (InterconnectError, PoolError, TimeoutError, ValueError, KeyError, RuntimeError) as error:
        if isinstance(error, Aborted | DeadlineExceeded | Draining) or loaded.engine.dead:
            raise
        active.check()
        first = Chunk(fallback=_reason(error))
        loaded.counters.add("fallbacks_total")
        step = await _compute_here(loaded, active, prompt, prefilled)
    finally:
        pulled.release()
    async for chunk in _stream(loaded, active, prompt, text, step, first):
        yield chunk


def _prompt(loaded: Loaded, request: Generate, prefilled: Prefilled) -> Prompt:
    """As the prefill had it. Raises PromptTooLong or BadRequest."""
    parts = [part for message in request.messages for part in message.content]
    images = [EncodedImage.from_base64(part.image) for part in parts if isinstance(part, ImagePart)]
    if len(images) != len(prefilled.images):
        raise BadRequest(f"{len(images)} images in the request, {len(prefilled.images)} in its prefill.")
    placed = tuple(PromptImage(grid, image) for grid, image in zip(prefilled.images, images, strict=True))
    return loaded.builder.checked(Prompt(prefilled.prompt_token_ids, placed), loaded.prompt_limit)


def _text(loaded: Loaded, request: Generate, prompt: Prompt) -> AnswerText:
    most = loaded.most_tokens(request.sampling, len(prompt.token_ids))
    return loaded.answer_text(request.sampling, most)


def _reason(error: BaseException) -> str:
    code = getattr(error, "code", "pull_deadline" if isinstance(error, TimeoutError) else type(error).__name__)
    return f"{code}: {error}" if str(error) else str(code)


@dataclass(slots=True)
class _Pulled:
    """What is known of a pull, also if it fails."""

    choice: Choice | None = None
    lease: Lease | None = None
    seconds: float = 0.0
    moved: int = 0

    def release(self) -> None:
        """Tell the source that its blocks are not needed any more. If that fails, the lease ends by itself."""
        choice, lease = self.choice, self.lease
        if choice is None or lease is None:
            return

        def tell() -> None:
            with contextlib.suppress(InterconnectError):
                choice.connection.release(lease, time.monotonic() + RELEASE_SECONDS)

        asyncio.get_running_loop().run_in_executor(None, tell)


async def _pull(loaded: Loaded, active: Active, order: Decode, prompt: Prompt, pulled: _Pulled) -> Step:
    """The first step of a sequence whose KV comes from the source."""
    from engine.pools.migration_backend import Pull

    until = time.monotonic() + order.pull_deadline_s
    kv = order.prefilled.kv
    assert kv is not None
    if (kv.engine_id, kv.epoch) != (order.source.engine_id, order.source.epoch):
        raise StaleEpoch("The KV is of another incarnation than the source that was named.")
    choice = await asyncio.to_thread(loaded.peers.connect, order.source, order.pull_deadline_s)
    lease = lease_for(kv.lease, choice.name)
    pulled.choice, pulled.lease = choice, lease
    name = f"{order.source.engine_id}@{order.source.epoch}"
    await loaded.engine.link(name, choice.connection.peer.regions["kv"])
    active.check()
    pull = Pull(name, choice.connection, lease, kv.block_ids, until)
    try:
        first = order.prefilled.first.token_ids[-1]
        step = await _submit(loaded, active, prompt, prompt, pull=pull, first_token=first, until=until)
    except BaseException as error:
        if active.answer:
            active.answer.cancel()
        if isinstance(error, PeerLost | StaleEpoch):
            loaded.peers.drop(order.source)
        raise
    pulled.seconds, pulled.moved = pull.seconds, pull.moved
    return step


async def _compute_here(loaded: Loaded, active: Active, prompt: Prompt, prefilled: Prefilled) -> Step:
    """The first step of a sequence that begins with the prompt and the first token, both computed here."""
    whole = await asyncio.to_thread(loaded.builder.with_pixels, prompt)
    active.check()
    extended = replace(whole, token_ids=(*whole.token_ids, *prefilled.first.token_ids))
    step = await _submit(loaded, active, extended, prompt)
    note_prompt(loaded, active.request, prompt, step)
    return step


async def _submit(
    loaded: Loaded,
    active: Active,
    given: Prompt,
    prompt: Prompt,
    *,
    pull: Pull | None = None,
    first_token: int | None = None,
    until: float | None = None,
) -> Step:
    """Begin a sequence and wait for its first step.

    Args:
        given: the prompt, perhaps with tokens of the answer.
    """
    request = active.request
    extra = len(given.token_ids) - len(prompt.token_ids)
    config = generation_config(
        request.sampling,
        prompt_tokens=len(prompt.token_ids),
        most=loaded.most_tokens(request.sampling, len(prompt.token_ids)) - extra,
        stop_token_ids=loaded.builder.stop_token_ids,
    )
    job = Job(given, config, pull=pull, first_token=first_token)
    active.follow(loaded.engine.submit(job))
    return await active.next(until)


async def _stream(
    loaded: Loaded, active: Active, prompt: Prompt, text: AnswerText, step: Step, chunk: Chunk
) -> AsyncIterator[Chunk]:
    """Steps into chunks, until the answer ends. `chunk`: what the first one has to say besides."""
    cached = step.cached_tokens
    while True:
        piece = text.push(step.token_ids)
        if step.finished and piece.finish_reason is None:
            raise EngineFailed("The engine ended an answer before its end.")
        loaded.counters.add("generated_tokens_total", len(piece.token_ids))
        usage = usage_of(prompt, text.tokens, cached) if piece.finish_reason else None
        if piece.token_ids or piece.text or usage or chunk != Chunk():
            yield chunk.model_copy(
                update={
                    "token_ids": piece.token_ids,
                    "text": piece.text,
                    "finish_reason": piece.finish_reason,
                    "usage": usage,
                }
            )
            chunk = Chunk()
        if piece.finish_reason:
            return
        try:
            step = await active.next()
        except Aborted:
            yield Chunk(finish_reason=FinishReason.ABORT, usage=usage_of(prompt, text.tokens, cached))
            return
