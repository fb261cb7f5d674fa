"""Who is there: instances that renew a lease by describing themselves, and what this router has under way with each."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from engine.pools.messages import InstanceStatus, PeerAddress
from engine.role import Role
from engine.router.errors import InstanceLost, StaleEpoch

COOL_OFF_S = (0.5, 8.0)
"""Seconds that an instance is left alone after a failure: at first, and at most; doubled with each in a row."""

REMEMBERED_PREFIXES = 4096
"""Prefixes kept for an instance that were prefilled since it last described itself."""


@dataclass(eq=False, slots=True)
class Instance:
    """One incarnation of an instance, as this router sees it.

    Attributes:
        status: as it described itself last; `heard` is when, on the loop's clock.
        lost: its lease ended, or another incarnation came. Never again otherwise.
        prefills, prefill_tokens, prefill_s: requests whose prompt is being computed there, with their predicted cost.
        running: answers that are being generated there, and those that will be after their prefill; `decoding`: the
            former alone.
        kv_tokens: tokens of KV that all those need, in the router's estimate.
        waiting_pull: prefilled there, not pulled by anybody yet.
        rest_until: it failed lately and is left alone until then.
        role_wanted: the role that a change under way will give it; it takes nothing more for its old one.
        switching: the old role's work has ended and the new one is being verified; it takes nothing at all.
    """

    status: InstanceStatus
    heard: float
    lost: bool = False
    prefills: int = 0
    prefill_tokens: int = 0
    prefill_s: float = 0.0
    running: int = 0
    decoding: int = 0
    kv_tokens: float = 0.0
    waiting_pull: int = 0
    failures: int = 0
    rest_until: float = 0.0
    role_wanted: Role | None = None
    switching: bool = False
    decode_speed: float = 1.0
    _prefixes: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _watched: set[asyncio.Timeout] = field(default_factory=set)

    @property
    def id(self) -> str:
        return self.status.address.engine_id

    @property
    def epoch(self) -> int:
        return self.status.address.epoch

    @property
    def url(self) -> str:
        return self.status.address.url

    @property
    def address(self) -> PeerAddress:
        return self.status.address

    @property
    def role(self) -> Role:
        """What it does, or will do at the end of the change that it is in."""
        return self.role_wanted or self.status.role

    @property
    def capacity_tokens(self) -> int:
        return self.status.total_blocks * self.status.block_size

    def usable(self, now: float) -> bool:
        """Whether requests may be given to it for the role that it has."""
        return self.role_wanted is None and self._is_fit(now)

    def joins(self, now: float) -> bool:
        """Whether it already takes what belongs to the role that it will have, while the last work of its old one
        ends. Not on the way to a hybrid: that has nothing to wait for.
        """
        on_the_way = self.role_wanted in (Role.PREFILL, Role.DECODE) and not self.switching
        return on_the_way and self._is_fit(now)

    def _is_fit(self, now: float) -> bool:
        ready = self.status.phase == "ready" and self.status.health.ok
        return ready and not self.lost and now >= self.rest_until

    def alive(self) -> bool:
        """Whether it may become usable without being started again."""
        return not self.lost and self.status.phase != "failed"

    def hit(self, prefixes: tuple[str, ...]) -> float:
        """Share of a prompt's parts, 0 to 1, whose KV is cached there."""
        if not prefixes:
            return 0.0
        roots = self._prefixes
        for count in range(len(prefixes), 0, -1):
            if prefixes[count - 1] in roots:
                return count / len(prefixes)
        return 0.0

    def has_prefilled(self, prefixes: tuple[str, ...]) -> None:
        """Remember it until the instance says so itself."""
        for prefix in prefixes:
            self._prefixes[prefix] = None
            self._prefixes.move_to_end(prefix)
        while len(self._prefixes) > REMEMBERED_PREFIXES:
            self._prefixes.popitem(last=False)

    def describe(self, status: InstanceStatus, now: float) -> None:
        """Take in what it says of itself."""
        self.status, self.heard = status, now
        self._prefixes = OrderedDict.fromkeys(reversed(status.prefix_roots))

    def failed(self, now: float) -> None:
        """Leave it alone for a while."""
        least, most = COOL_OFF_S
        self.rest_until = now + min(most, least * 2**self.failures)
        self.failures += 1

    def succeeded(self) -> None:
        self.failures = 0

    @asynccontextmanager
    async def watched(self, seconds: float) -> AsyncIterator[None]:
        """Wait for the instance within: for so long at most, and not beyond its loss.

        Raises:
            InstanceLost: it is gone, or said nothing for `seconds`.
        """
        if self.lost:
            raise InstanceLost(f"instance {self.id} is gone")
        try:
            async with asyncio.timeout(seconds) as scope:
                self._watched.add(scope)
                try:
                    yield
                finally:
                    self._watched.discard(scope)
        except TimeoutError:
            what = "is gone" if self.lost else f"did not answer within {seconds:.1f} s"
            raise InstanceLost(f"instance {self.id} {what}") from None

    def lose(self) -> None:
        """End every wait for it."""
        self.lost = True
        now = asyncio.get_running_loop().time()
        for scope in self._watched:
            scope.reschedule(now)


class Registry:
    """Instances by id, each the newest incarnation. `changed` is called whenever somebody might have become usable."""

    def __init__(self, lease_s: float, changed: Callable[[], None]) -> None:
        self.lease_s = lease_s
        self.lost = 0
        self._changed = changed
        self._by_id: dict[str, Instance] = {}

    def __iter__(self) -> Iterator[Instance]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, id: str) -> Instance | None:
        return self._by_id.get(id)

    def heard(self, status: InstanceStatus) -> Instance:
        """An instance described itself: begin or renew its lease.

        Raises:
            StaleEpoch: a newer incarnation is known.
        """
        now = asyncio.get_running_loop().time()
        known = self._by_id.get(status.address.engine_id)
        if known and status.address.epoch < known.epoch:
            raise StaleEpoch(f"instance {known.id} is at epoch {known.epoch}, not {status.address.epoch}")
        if known and status.address.epoch > known.epoch:
            self._lose(known)
            known = None
        if known is None:
            known = Instance(status, now)
            self._by_id[known.id] = known
        known.describe(status, now)
        self._changed()
        return known

    def expire(self) -> None:
        """Drop instances whose lease ended."""
        now = asyncio.get_running_loop().time()
        for instance in list(self._by_id.values()):
            if now - instance.heard > self.lease_s:
                self._lose(instance)
                del self._by_id[instance.id]

    def models(self) -> list[str]:
        """Names of the models served, each once."""
        return sorted({model_name(instance.status.model) for instance in self._by_id.values()})

    def _lose(self, instance: Instance) -> None:
        self.lost += 1
        instance.lose()
        self._changed()


def model_name(model: str) -> str:
    """How users call a model: its folder's name, never a path of the instance's machine."""
    return model.rstrip("/").rsplit("/", 1)[-1]
