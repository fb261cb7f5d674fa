"""LMDeploy's engine in a thread of its own, with an event loop of its own, which its forward blocks.

Everything else of the instance (HTTP, health, leases) lives in other threads and talks to it by messages: `submit`
gives an `Answer` from which tokens are taken, and which can be cancelled at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from engine.lmdeploy_patches.pressure import Evictions
from engine.pools.errors import EngineFailed, NotReady
from engine.pools.sequence import Answer, Job, Step
from engine.pools.settings import InstanceSettings

if TYPE_CHECKING:
    from engine.interconnect.layout import KVLayout
    from engine.pools.kv_cache import KVCache
    from engine.pools.migration_backend import InterconnectBackend

log = logging.getLogger(__name__)
T = TypeVar("T")

_LIVENESS_SECONDS = 1.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Load:
    """Of one engine at a moment.

    Attributes:
        running: sequences that are being computed.
        sessions: those that LMDeploy knows, leased ones included.
        free_blocks: of the KV cache; those that only the cache of prefixes holds count, because it gives way.
        cached_blocks: those of the cache of prefixes.
    """

    running: int = 0
    sessions: int = 0
    free_blocks: int = 0
    cached_blocks: int = 0


class EngineThread:
    """One LMDeploy engine. There must be only one in a process.

    Attributes:
        cache: KV cache, once the model is loaded; as are `operators`, the choice for each with its reason, and `mode`.
        on_death: called, from the engine's thread, if the engine dies.
    """

    def __init__(self, settings: InstanceSettings, pixels: Callable[[Any], Any]) -> None:
        self.settings = settings
        self.cache: KVCache | None = None
        self.operators: Mapping[str, str] = {}
        self.mode = ""
        self.on_death: Callable[[Exception], None] = lambda error: None
        self._pixels = pixels
        self._engine: Any = None
        self._runner: Any = None
        self._backend: InterconnectBackend | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: Future[None] = Future()
        self._stop = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sessions = itertools.count(1)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.dead: Exception | None = None
        self.vision_runs = 0
        self.evictions = Evictions()
        self._load = Load()

    def start(self) -> Future[None]:
        """Load the model; the answer is done when requests can be submitted, and carries what went wrong if not."""
        self._thread.start()
        return self._ready

    def submit(self, job: Job) -> Answer:
        """Begin a sequence; in the event loop that takes its steps. Raises EngineFailed if the engine is dead."""
        loop = self._alive()
        answer = Answer(next(self._sessions), self.cancel)
        loop.call_soon_threadsafe(self._begin, job, answer)
        return answer

    def cancel(self, session_id: int) -> None:
        """Stop a sequence wherever it is and free its blocks. From any thread; twice is harmless."""
        if self._loop and not self.dead:
            self._loop.call_soon_threadsafe(self._cancel, session_id)

    def end_session(self, session_id: int) -> None:
        """Free the blocks of a sequence that kept them. From any thread; twice is harmless."""
        if self._loop and not self.dead and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, session_id)

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function in the engine's thread, between two steps."""

        async def run() -> T:
            return function()

        return await self._await(run())

    async def link(self, name: str, layout: KVLayout) -> None:
        """Make a peer known to LMDeploy."""
        from engine.pools.migration_backend import link

        await self.call(lambda: link(self._engine, name, layout))

    async def before_lease(self, blocks: tuple[int, ...]) -> None:
        """Make blocks readable for peers."""
        cache = self.cache
        assert cache is not None
        if cache.is_staged:
            await self.call(lambda: cache.before_lease(blocks))

    # What may be read at any time, from any thread; numbers are those of a moment.

    @property
    def max_session_len(self) -> int:
        return int(self._engine.max_session_len)

    @property
    def total_blocks(self) -> int:
        config = self._engine.cache_config
        return int(config.num_gpu_blocks - config.num_reserved_gpu_blocks)

    @property
    def block_size(self) -> int:
        return int(self._engine.cache_config.block_size)

    @property
    def max_batch_size(self) -> int:
        return int(self._engine.scheduler_config.max_batches)

    @property
    def decode_steps(self) -> tuple[int, int]:
        """Decode steps that ran as a graph, and those that should have and could not; where the adapter counts them."""
        return getattr(self._runner, "graph_steps", 0), getattr(self._runner, "eager_decode_steps", 0)

    @property
    def device(self) -> str:
        """Name of what computes."""
        import torch

        if self.settings.vendor == "cuda":
            return str(torch.cuda.get_device_name())
        return self.settings.vendor

    async def load(self) -> Load:
        """How busy it is. While a step takes long, what it was when it was last seen."""
        if not self.dead:
            with contextlib.suppress(TimeoutError):
                self._load = await asyncio.wait_for(self.call(self._look), _LOOK_SECONDS)
        return self._load

    def close(self) -> None:
        """End the loop; whoever waits gets an error. Twice is harmless."""
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    # In the engine's thread.

    def _run(self) -> None:
        self._ready.set_running_or_notify_cancel()
        try:
            self._engine = self._build()
        except Exception as error:
            log.exception("the engine did not start")
            self.dead = error
            self._ready.set_exception(error)
            return
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - told to all who wait
            self._died(error)

    def _build(self) -> Any:
        from engine.pools.build_engine import build_engine

        built = build_engine(self.settings, self._pixels)
        engine, self.cache, self._backend = built.engine, built.cache, built.backend
        self.operators, self.mode, self.evictions = built.operators, built.mode, built.evictions
        self._runner = engine.executor.model_agent.patched_model
        model = self._runner.get_model()
        if hasattr(model, "visual"):
            model.visual.register_forward_hook(self._count_vision)
        return engine

    def _count_vision(self, *_: Any) -> None:
        self.vision_runs += 1

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        engine = self._engine
        engine.start_loop()
        stop = asyncio.create_task(self._stop.wait())
        main = asyncio.ensure_future(engine.req_manager._loop_task)
        self._ready.set_result(None)
        await asyncio.wait({stop, main}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            stop.cancel()
            error = main.exception() if not main.cancelled() else None
            self._died(error if isinstance(error, Exception) else RuntimeError("the engine's loop has ended"))
        for task in list(self._tasks.values()):
            task.cancel()
        engine.stop()
        await asyncio.wait({main}, timeout=5)

    def _died(self, error: Exception) -> None:
        if self.dead is None:
            log.error("the engine has died: %r", error)
            self.dead = error
            self.on_death(error)

    def _begin(self, job: Job, answer: Answer) -> None:
        task = asyncio.create_task(self._drive(job, answer))
        self._tasks[answer.session_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(answer.session_id, None))

    def _cancel(self, session_id: int) -> None:
        task = self._tasks.get(session_id)
        if task is None or not task.cancel():
            # It has ended; if it kept its blocks, nobody will ask for them any more.
            self._end(session_id)

    async def _drive(self, job: Job, answer: Answer) -> None:
        from engine.lmdeploy_patches.turns import patient_of
        from engine.pools.lmdeploy_messages import add_message, add_session, step_of

        keep = False
        pull, session_id = job.pull, answer.session_id
        computed, patient = self._engine.scheduler.in_flight.computed, patient_of(self._engine.scheduler)
        sender = self._engine.req_manager.build_sender()
        try:
            if pull and self._backend:
                self._backend.pulls[session_id] = pull
            if job.patient:
                patient.add(session_id)
            response = sender.send_async(*add_session(session_id))
            response = sender.send_async(*add_message(session_id, job))
            sent = 0
            while True:
                await self._arrival(response)
                step = step_of(response, sent)
                sent += len(step.token_ids)
                if step.finished:
                    step = replace(step, computed_s=computed.get(session_id))
                    keep = job.keep_cache and not step.error
                answer.push(step)
                if step.finished or step.error:
                    break
        except asyncio.CancelledError:
            if not self._stop.is_set() and not self.dead:
                return
            answer.push(Step(error=EngineFailed("The engine was stopped.")))
        except Exception as error:
            log.exception("session %s failed", session_id)
            answer.push(Step(error=EngineFailed(f"{type(error).__name__}: {error}")))
        finally:
            self._engine.req_manager.senders.pop(sender.sender_id, None)
            computed.pop(session_id, None)
            patient.discard(session_id)
            if not keep:
                self._end(session_id)

    async def _arrival(self, response: Any) -> None:
        while not response.event.is_set():
            try:
                # Not `wait_for`: where the event and a cancellation come together, Python 3.11's forgets the latter,
                # and what was cancelled would keep its blocks for ever.
                async with asyncio.timeout(_LIVENESS_SECONDS):
                    await response.event.wait()
            except TimeoutError:
                if self.dead or not self._engine.req_manager.is_loop_alive():
                    raise EngineFailed("The engine has died.") from None
        response.event.clear()

    def _look(self) -> Load:
        scheduler = self._engine.scheduler
        manager = scheduler.block_manager
        nodes = [node for root in scheduler.block_trie._roots.values() for node in _below(root)]
        counts = manager.allocator.get_ref_count(np.asarray([node.block_id for node in nodes], np.int64))
        cached = int((counts == 1).sum())
        free = int(manager.get_num_free_gpu_blocks()) + cached
        return Load(int(scheduler.num_running() + scheduler.num_ready()), len(scheduler.sessions), free, cached)

    def _end(self, session_id: int) -> None:
        """Free a session's blocks; those that a pull may still write into, when it cannot any more."""
        pulls = self._backend.pulls if self._backend else {}
        if pull := pulls.get(session_id):
            pull.cancel()
            if pull.may_write:
                assert pull.transfer is not None
                pull.transfer.when_fenced(lambda: self.end_session(session_id))
                return
            del pulls[session_id]
        waiting = self._engine.req_manager
        if not self._engine.end_session(session_id) and waiting.has_requests() and waiting.is_loop_alive():
            # It may be in the queue still, where LMDeploy has not seen it.
            asyncio.get_running_loop().call_soon(self._end, session_id)

    # From other threads.

    def _alive(self) -> asyncio.AbstractEventLoop:
        if self.dead:
            raise EngineFailed(f"The engine has died: {self.dead}")
        if self._loop is None:
            raise NotReady("The model is being loaded.")
        return self._loop

    async def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._alive()))


def _below(node: Any) -> list[Any]:
    found, todo = [], list(node.children.values())
    while todo:
        child = todo.pop()
        found.append(child)
        todo.extend(child.children.values())
    return found
