"""Who can pull KV from whom, how fast, and whether that is enough for what arrives."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.pools.messages import Bandwidth
from engine.role import Role
from engine.router.errors import RouterError
from engine.router.instance_client import InstanceClient
from engine.router.registry import Instance, Registry

CONNECT_S = 20.0
"""Seconds that greeting and measuring may take."""

RETRY_S = (0.5, 30.0)
"""Seconds before a failed greeting is tried again: at first, and at most."""

MEMORY_S = 20.0
"""Seconds after which what arrived counts 1/e in the rate of KV."""

TOO_LITTLE, ENOUGH_AGAIN = 0.8, 0.6
"""Shares of the links' bandwidth: KV above the first does not go over them until it is below the second."""


@dataclass(slots=True)
class Link:
    """From a prefill instance to a decode instance, each of one incarnation.

    Attributes:
        bandwidth: None while it is being measured.
        failures: greetings that failed in a row; `why` the last did.
    """

    source: Instance
    reader: Instance
    bandwidth: Bandwidth | None = None
    failures: int = 0
    why: str = ""
    retry_at: float = 0.0
    connecting: bool = False


class KVRate:
    """KV that requests would move, in bytes a second, weighted to the recent past."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._at = 0.0

    def add(self, nbytes: float, now: float) -> None:
        """A request came whose KV has `nbytes`."""
        self._rate = self.at(now) + nbytes / MEMORY_S
        self._at = now

    def at(self, now: float) -> float:
        """The rate, as it has faded by `now`."""
        return self._rate * math.exp(-max(0.0, now - self._at) / MEMORY_S)


class Links:
    """All pairs of a prefill and a decode instance; greets new ones by itself."""

    def __init__(
        self, registry: Registry, client: InstanceClient, min_bytes_s: float, changed: Callable[[], None]
    ) -> None:
        self.traffic = KVRate()
        self.too_slow = False
        self._registry = registry
        self._client = client
        self._min_bytes_s = min_bytes_s
        self._changed = changed
        self._links: dict[tuple[str, int, str, int], Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def update(self) -> None:
        """Greet the pairs that are new, forget those that are gone. Call it when the registry changed, and at times."""
        now = asyncio.get_running_loop().time()
        alive = [instance for instance in self._registry if instance.alive() and instance.status.phase != "starting"]
        pairs = {
            (source.id, source.epoch, reader.id, reader.epoch): (source, reader)
            for source in alive
            if source.role is Role.PREFILL
            for reader in alive
            if reader.role is Role.DECODE and reader.status.model == source.status.model
        }
        for key in self._links.keys() - pairs.keys():
            if self._links[key].source.lost or self._links[key].reader.lost:
                del self._links[key]
        for key, (source, reader) in pairs.items():
            link = self._links.setdefault(key, Link(source, reader))
            if link.bandwidth is None and not link.connecting and now >= link.retry_at:
                link.connecting = True
                task = asyncio.create_task(self._greet(link))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._judge(now)

    def between(self, source: Instance, reader: Instance) -> Link | None:
        """The measured link, if there is one that is fast enough."""
        link = self._links.get((source.id, source.epoch, reader.id, reader.epoch))
        if link is None or link.bandwidth is None or link.bandwidth.bytes_per_s < self._min_bytes_s:
            return None
        return link

    def pending(self) -> bool:
        """Whether a pair is being greeted for the first time, so that waiting a moment is better than going without."""
        return any(link.bandwidth is None and link.failures == 0 for link in self._links.values())

    def broken(self, source: Instance, reader: Instance, why: str) -> None:
        """A pull over it failed in a way that asks for greeting again."""
        link = self._links.get((source.id, source.epoch, reader.id, reader.epoch))
        if link is not None and link.bandwidth is not None:
            link.bandwidth, link.why = None, why
            link.failures += 1
            self.update()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _greet(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        try:
            link.bandwidth = await self._client.connect(link.reader, link.source.address, CONNECT_S)
            link.failures, link.why = 0, ""
        except RouterError as error:
            link.why = str(error)
            least, most = RETRY_S
            link.retry_at = loop.time() + min(most, least * 2**link.failures)
            link.failures += 1
        finally:
            link.connecting = False
        self._judge(loop.time())
        self._changed()

    def _judge(self, now: float) -> None:
        """Each source sends over its fastest link at most: that is what the pools can move."""
        best: dict[str, float] = {}
        for link in self._links.values():
            if link.bandwidth and link.source.alive() and link.reader.alive():
                best[link.source.id] = max(best.get(link.source.id, 0.0), link.bandwidth.bytes_per_s)
        able = sum(best.values())
        if not best:
            self.too_slow = False
        elif self.traffic.at(now) > TOO_LITTLE * able or max(best.values()) < self._min_bytes_s:
            self.too_slow = True
        elif self.traffic.at(now) < ENOUGH_AGAIN * able:
            self.too_slow = False
