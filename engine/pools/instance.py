"""One instance: an engine, its role and health, and the requests that it serves. The HTTP surface is `app.py`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from engine.interconnect.errors import LayoutMismatch
from engine.pools import decode, prefill
from engine.pools.canary import FEWEST_TOKENS, TOKENS, Canary
from engine.pools.counters import Counters, prometheus_text
from engine.pools.engine_thread import EngineThread
from engine.pools.errors import Aborted, Draining, EngineFailed, NotReady, PeerUnreachable, PoolError, StaleEpoch
from engine.pools.loaded import Loaded
from engine.pools.messages import (
    Bandwidth,
    Chunk,
    Decode,
    Generate,
    Health,
    InstanceStatus,
    PeerAddress,
    Prefilled,
    RoleChange,
)
from engine.pools.prompt import PromptBuilder
from engine.pools.requests import Requests
from engine.pools.roles import RoleState, ended_by
from engine.pools.settings import InstanceSettings

log = logging.getLogger(__name__)

CONNECT_SECONDS = 20.0


class Instance:
    """Lives in the event loop of the HTTP server; the engine has a thread and a loop of its own.

    Args:
        url: where others reach it.

    Attributes:
        on_death: called if the engine dies.
    """

    def __init__(self, settings: InstanceSettings, url: str) -> None:
        self.settings = settings
        self.url = url
        self.state = RoleState(settings.role)
        self.requests = Requests(settings.max_requests)
        self.counters = Counters()
        self.on_death: Callable[[], None] = lambda: None
        self._born = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded: Loaded | None = None
        self._canary: Canary | None = None
        self._failure = "the model is being loaded"

    async def start(self) -> None:
        """Load the model and begin to serve. Raises whatever kept it from doing so."""
        try:
            await self._load()
        except BaseException as error:
            self.state.phase, self._failure = "failed", f"the start failed: {error}"
            raise
        self.state.phase = "ready"
        self._spawn(self._watch())

    async def drain(self, seconds: float) -> None:
        """Take nothing new, and wait for what runs; what has not ended by then is stopped."""
        if self.state.phase == "ready":
            self.state.phase = "draining"
        await self.requests.drain(seconds, Draining("The instance is being stopped."))

    async def close(self) -> None:
        """Stop everything. Twice is harmless."""
        self.state.phase = "failed"
        self._failure = "the instance has been stopped"
        self.requests.stop_all(Draining("The instance is being stopped."))
        for task in self._tasks:
            task.cancel()
        if self._loaded:
            await asyncio.to_thread(self._loaded.close)

    # Requests.

    async def prefill(self, request: Generate) -> Prefilled:
        """Raises PoolError."""
        self.state.check("prefill", request.early)
        with self.requests.admit(request, "prefill", self._ended) as active:
            self.counters.add("requests_total")
            return await prefill.prefill(self.loaded, active)

    async def decode(self, order: Decode) -> AsyncIterator[Chunk]:
        """Raises PoolError, before the first chunk or after it."""
        self.state.check("decode", order.request.early)
        with self.requests.admit(order.request, "decode", self._ended) as active:
            self.counters.add("requests_total")
            async for chunk in decode.decode(self.loaded, active, order):
                yield chunk

    async def generate(self, request: Generate) -> AsyncIterator[Chunk]:
        """Raises PoolError, before the first chunk or after it."""
        self.state.check("generate")
        with self.requests.admit(request, "generate", self._ended) as active:
            self.counters.add("requests_total")
            async for chunk in decode.generate(self.loaded, active):
                yield chunk

    async def release(self, request_id: str) -> None:
        """The KV of a prefill is not needed any more. Twice is harmless."""
        if self._loaded:
            await asyncio.to_thread(self._loaded.leases.release, request_id)

    async def abort(self, request_id: str) -> None:
        """Stop a request wherever it is and free its blocks. Twice is harmless."""
        self.requests.abort(request_id)
        await self.release(request_id)

    # The instance itself.

    async def change_role(self, change: RoleChange) -> InstanceStatus:
        """Drain, switch, verify. Raises StaleEpoch, NotReady, EngineFailed."""
        if change.epoch != self.settings.epoch:
            raise StaleEpoch(f"This is incarnation {self.settings.epoch}, not {change.epoch}.")

        async def drain() -> None:
            why = Draining("The instance is changing its role.")
            await self.requests.drain(change.drain_s, why, ended_by(change.role))

        async def verify() -> bool:
            return await self.ask_canary(FEWEST_TOKENS)

        if await self.state.change(change.role, drain, verify):
            self.counters.add("role_changes_total")
        return await self.status()

    async def connect(self, peer: PeerAddress) -> Bandwidth:
        """Greet an instance to pull from, and measure. Raises PeerUnreachable."""
        loaded = self.loaded
        try:
            choice = await asyncio.to_thread(loaded.peers.connect, peer, CONNECT_SECONDS)
        except LayoutMismatch as error:
            raise PeerUnreachable(f"layout_mismatch: {error.message}") from None
        return Bandwidth(transport=choice.name, bytes_per_s=choice.bytes_per_second)

    async def ask_canary(self, tokens: int = TOKENS) -> bool:
        """A real inference of so many tokens. True if it was right."""
        assert self._canary is not None
        right = await self._canary.ask(tokens)
        self.counters.add("canaries_total")
        if not right:
            self.counters.add("canaries_failed_total")
            log.error("%s", self._canary.health().reason)
        return right

    def health(self) -> Health:
        if self.state.phase in ("starting", "failed") or self._canary is None:
            found = Health(ok=False, reason=self._failure, age_s=time.monotonic() - self._born, seconds=0)
        else:
            found = self._canary.health()
        return found.model_copy(update={"cpu_share": self.settings.cpu_share})

    async def status(self) -> InstanceStatus:
        """Raises NotReady while the model is being loaded."""
        loaded = self.loaded
        engine, cache = loaded.engine, loaded.engine.cache
        assert cache is not None
        load = await engine.load()
        self.counters.set("vision_runs_total", engine.vision_runs)
        in_graph, eagerly = engine.decode_steps
        self.counters.set("graph_steps_total", in_graph)
        self.counters.set("graph_misses_total", eagerly)
        self.counters.set("evicted_sequences_total", engine.evictions.sequences)
        self.counters.set("evicted_blocks_total", engine.evictions.blocks)
        return InstanceStatus(
            address=loaded.address,
            model=self.settings.shown_model,
            vendor=self.settings.vendor,
            device=engine.device,
            mode=engine.mode,
            role=self.state.role,
            phase=self.state.phase,
            session_len=engine.max_session_len,
            max_batch_size=engine.max_batch_size,
            max_prefill_tokens=self.settings.max_prefill_tokens,
            block_size=engine.block_size,
            kv_bytes_per_token=cache.token_bytes,
            running=min(load.running, len(self.requests)),
            waiting=max(0, len(self.requests) - load.running),
            free_blocks=load.free_blocks,
            total_blocks=engine.total_blocks,
            leases=loaded.leases.count(),
            remaining_tokens=self.requests.remaining_tokens,
            prefix_roots=loaded.prefixes.roots(),
            counters=self.counters.snapshot(),
            operators=dict(engine.operators),
            health=self.health(),
            uptime_s=time.monotonic() - self._born,
        )

    async def metrics(self) -> bytes:
        """The text format of Prometheus."""
        status = await self.status()
        gauges = {
            "running": status.running,
            "waiting": status.waiting,
            "free_blocks": status.free_blocks,
            "total_blocks": status.total_blocks,
            "leases": status.leases,
            "healthy": float(status.health.ok),
            "canary_age_seconds": status.health.age_s,
            "uptime_seconds": status.uptime_s,
        }
        info = {"engine_id": status.address.engine_id, "model": status.model, "role": status.role, "mode": status.mode}
        return prometheus_text(status.counters, gauges, info)

    @property
    def loaded(self) -> Loaded:
        """Raises NotReady while there is nothing."""
        if self._loaded is None:
            raise NotReady(f"The instance is {self.state.phase}: {self._failure}.")
        return self._loaded

    async def _load(self) -> None:
        builder = await asyncio.to_thread(PromptBuilder, self.settings.model)
        loop = asyncio.get_running_loop()
        engine = EngineThread(self.settings, builder.pixels)

        def died(error: Exception) -> None:
            loop.call_soon_threadsafe(self._died, error)

        engine.on_death = died
        await asyncio.wrap_future(engine.start())
        self.counters.add("weights_loaded_total")
        self._loaded = Loaded.of(self.settings, builder, engine, self.requests, self.counters, self.url)
        self._canary = Canary(engine, builder.vocabulary, self.settings.canary_s)
        if not await self.ask_canary():
            raise EngineFailed(self._canary.health().reason)

    async def _watch(self) -> None:
        """Ask the canary for as long as the instance lives."""
        while True:
            await asyncio.sleep(self.settings.canary_s)
            await self.ask_canary()

    def _died(self, error: Exception) -> None:
        self.state.phase, self._failure = "failed", f"the engine has died: {error}"
        self.requests.stop_all(EngineFailed("The engine has died."))
        self.on_death()

    def _ended(self, error: BaseException) -> None:
        """A request was ended by something."""
        if isinstance(error, Aborted | asyncio.CancelledError | GeneratorExit):
            self.counters.add("requests_aborted_total")
        else:
            self.counters.add("requests_failed_total")
            if not isinstance(error, PoolError):
                log.error("a request failed", exc_info=error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
