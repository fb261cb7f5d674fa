"""Pulls of KV blocks, on an engine of any role, that cost only their own request when they fail.

LMDeploy's own loop pulls one request after the other, and any exception ends it and with it every later request. Here
each pull is a task; a failed one answers its request with the error and leaves everything else alone. LMDeploy starts
its loop for the roles Prefill and Decode only, and turns prefix caching off for them; ours runs on a Hybrid engine, so
that prefixes are cached and a role can change while the engine runs.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from contextvars import ContextVar
from typing import Any

from engine.lmdeploy_patches.hooks import function, replace

log = logging.getLogger(__name__)

CURRENT_SESSION: ContextVar[int] = ContextVar("session whose KV is being pulled")
"""LMDeploy tells a migration backend which bytes to move, but not for whom."""

_LOOP = "lmdeploy.pytorch.engine.engine_loop:EngineLoop"
_CAPACITY_SECONDS = 0.02
"""How soon a pull that waits for free blocks looks again; LMDeploy's own loop waits for half a second."""


def install_migration() -> None:
    """Start our loop with LMDeploy's others.

    Raises:
        LMDeployChanged: a hook is not what it was.
    """
    hook = f"{_LOOP}.start"
    original = function(hook, ["self", "event_loop"])
    function(f"{_LOOP}._migration_loop_get_outputs", ["self", "migration_ready"])
    function("lmdeploy.pytorch.paging.scheduler:Scheduler.schedule_migration", ["self"])
    function("lmdeploy.pytorch.paging.block_trie:BlockTrie.allocate", ["self", "seq"])
    function("lmdeploy.pytorch.paging.scheduler:Scheduler.seqs_migration_activation", ["self", "running"])
    function("lmdeploy.pytorch.engine.engine:response_reqs", ["req_manager", "resp", "resp_type", "data", "err_msg"])

    @functools.wraps(original)
    def start(self: Any, event_loop: asyncio.AbstractEventLoop) -> None:
        original(self, event_loop)
        task = event_loop.create_task(_migration_loop(self), name="PagemillMigration")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    replace(hook, start)


async def _migration_loop(self: Any) -> None:
    tasks: set[asyncio.Task[None]] = set()
    while not self.stop_event.is_set():
        ready = self.scheduler.schedule_migration()
        for sequence in ready:
            task = asyncio.create_task(_migrate(self, sequence))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if ready:
            continue
        # No capacity now, or nothing to do.
        seconds = _CAPACITY_SECONDS if self.scheduler.has_migration_waiting() else None
        try:
            await asyncio.wait_for(self.migration_event.wait(), seconds)
        except TimeoutError:
            continue
        self.migration_event.clear()


async def _migrate(self: Any, sequence: Any) -> None:
    from lmdeploy.messages import ResponseType
    from lmdeploy.pytorch.engine.engine import response_reqs
    from lmdeploy.pytorch.messages import MessageStatus

    CURRENT_SESSION.set(sequence.session_id)
    try:
        await _pull(self, sequence)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, it is this request's alone
        log.info("pull for session %s failed: %s", sequence.session_id, error)
        # Its blocks are given back by whoever owns the session, once nothing can write into them any more.
        if sequence.status is MessageStatus.MIGRATION_READY:
            response_reqs(self.req_manager, sequence.resp, ResponseType.INTERNAL_ENGINE_ERROR, {"error": error})
        return
    if sequence.status is not MessageStatus.MIGRATION_READY:
        # Ended in the meantime.
        return
    # Its blocks are complete now and may be shared. LMDeploy would look for a cached beginning again at the first step,
    # and, not knowing that the sequence has its blocks, add those of the beginning behind them.
    self.scheduler.block_trie.allocate(sequence)
    with self.scheduler.seqs_migration_activation([sequence]):
        await self._migration_loop_get_outputs([sequence])
    self.has_runable_event.set()


async def _pull(self: Any, sequence: Any) -> None:
    from lmdeploy.pytorch.disagg.messages import MigrationExecutionBatch

    request, size = sequence.migration_request, sequence.block_size
    backend = self.executor.model_agent.cache_engine.migration_backend_impl
    tokens = sequence.num_valid_ids
    # A prefix that is cached here is shared with others: it is not pulled, and must not be written.
    cached = sequence.num_history_ids // size
    local = self.scheduler.get_block_tables([sequence])[0].tolist()[: -(-tokens // size)]
    own = local[cached:]
    repacks = backend.repacks()
    remote = request.remote_block_ids[: len(local)]
    if len(local) * size < tokens or (len(remote) < len(local) and not repacks):
        raise ValueError(f"{len(remote)} blocks there and {len(local)} here for a prompt of {tokens} tokens")
    if not own:
        return
    # A step that has been sent may still write for a sequence which had these blocks before.
    in_flight = getattr(self.scheduler, "in_flight", None)
    if in_flight is not None:
        await in_flight.wait_for(set(own))
    if repacks:
        await backend.repack(own, tokens, cached * size)
        return
    pairs = list(zip(remote[cached:], own, strict=True))
    batch = MigrationExecutionBatch(protocol=request.protocol, requests=[(request.remote_engine_id, pairs)])
    await self.executor.migrate(batch)
