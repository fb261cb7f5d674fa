"""A prompt into its first token and its KV blocks, which are leased to whoever decodes."""

from __future__ import annotations

import asyncio
import time

from engine.pools.loaded import Loaded
from engine.pools.messages import Chunk, Generate, KVHandle, Prefilled, Usage
from engine.pools.prompt import Prompt
from engine.pools.requests import Active
from engine.pools.sampling import generation_config
from engine.pools.sequence import Answer, Job, Step


async def prefill(loaded: Loaded, active: Active) -> Prefilled:
    """Compute a request's prompt, and lease its KV unless the first token ends the answer.

    Raises:
        PoolError: what kept it from it; nothing is held then.
    """
    request = active.request
    arrived = time.monotonic()
    prompt = await asyncio.to_thread(loaded.builder.build, request, loaded.prompt_limit)
    active.check()
    most = loaded.most_tokens(request.sampling, len(prompt.token_ids))
    text = loaded.answer_text(request.sampling, most)
    config = generation_config(
        request.sampling,
        prompt_tokens=len(prompt.token_ids),
        most=1,
        stop_token_ids=loaded.builder.stop_token_ids,
        with_cache=True,
        preserve_cache=True,
    )
    answer = active.follow(loaded.engine.submit(Job(prompt, config, keep_cache=True, patient=request.early)))
    step = await active.next()
    piece = text.push(step.token_ids)
    kv = None
    if piece.finish_reason is None:
        kv = await _lease(loaded, request, prompt, answer, step)
        # From here on the blocks are the lease's.
        active.answer = None
    note_prompt(loaded, request, prompt, step)
    loaded.counters.add("generated_tokens_total", len(piece.token_ids))
    passed = time.monotonic() - arrived
    computed = passed if step.computed_s is None else step.computed_s
    return Prefilled(
        request_id=request.request_id,
        prompt_token_ids=prompt.token_ids,
        images=tuple(image.grid for image in prompt.images),
        first=Chunk(
            token_ids=piece.token_ids,
            text=piece.text,
            finish_reason=piece.finish_reason,
            usage=usage_of(prompt, text.tokens, step.cached_tokens) if piece.finish_reason else None,
        ),
        kv=kv,
        queue_s=max(0.0, passed - computed),
        prefill_s=computed,
    )


async def _lease(loaded: Loaded, request: Generate, prompt: Prompt, answer: Answer, step: Step) -> KVHandle:
    engine, seconds = loaded.engine, loaded.settings.lease_s
    # The last of LMDeploy's blocks may be there only for tokens to come.
    blocks = step.blocks[: -(-len(prompt.token_ids) // engine.block_size)]
    await engine.before_lease(blocks)
    until = time.monotonic() + seconds
    loop = asyncio.get_running_loop()

    def freed() -> None:
        engine.end_session(answer.session_id)
        if time.monotonic() >= until:
            loop.call_soon_threadsafe(loaded.counters.add, "leases_expired_total")

    lease = loaded.leases.grant(request.request_id, blocks, seconds, freed)
    loaded.counters.add("leases_total")
    settings = loaded.settings
    return KVHandle(engine_id=settings.engine_id, epoch=settings.epoch, lease=lease, block_ids=blocks, lease_s=seconds)


def note_prompt(loaded: Loaded, request: Generate, prompt: Prompt, step: Step) -> None:
    """Count a prompt that was computed here, and remember its beginnings."""
    counters = loaded.counters
    counters.add("prefills_total")
    counters.add("prompt_tokens_total", len(prompt.token_ids) - step.cached_tokens)
    counters.add("cached_tokens_total", step.cached_tokens)
    counters.add("image_tokens_total", prompt.image_tokens)
    if loaded.settings.prefix_caching:
        loaded.prefixes.add(request.messages, len(prompt.token_ids))


def usage_of(prompt: Prompt, completion: int, cached: int) -> Usage:
    """`prompt`: without tokens of the answer."""
    return Usage(
        prompt_tokens=len(prompt.token_ids),
        completion_tokens=completion,
        cached_tokens=cached,
        image_tokens=prompt.image_tokens,
    )
