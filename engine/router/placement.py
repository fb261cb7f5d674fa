"""Where a request goes: by the KV that is there already, then by load. A pure choice among what the registry knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.balancer.costs import Costs
from engine.balancer.routing import choose_decode
from engine.pools.settings import PATIENT_STEPS
from engine.role import Role
from engine.router.links import Links
from engine.router.registry import Instance, Registry, model_name
from engine.router.ticket import Ticket


class Mode(StrEnum):
    """How a request is served.

    `SPLIT`: prefill on one instance, decode on another. `HYBRID`: both on an instance of that role. `NO_PAIR`: both
    on one instance, because no two can share the work. `BANDWIDTH`: both on one, because the links are too slow.
    """

    SPLIT = "split"
    HYBRID = "hybrid"
    NO_PAIR = "no_pair"
    BANDWIDTH = "bandwidth"


@dataclass(eq=False, slots=True)
class Placement:
    """A request at its instances; counts itself there from the beginning to `close`.

    Attributes:
        prefill, decode: the same one unless `mode` is SPLIT.
        hit: share of the prompt, 0 to 1, whose KV the prefill instance has.
    """

    ticket: Ticket
    prefill: Instance
    decode: Instance
    mode: Mode
    hit: float
    _prefilling: bool = False
    _waiting: bool = False
    _source_kv: float = 0.0
    _reader_kv: float = 0.0
    _decoding: bool = False
    _there: bool = False

    def begin(self) -> Placement:
        """Take the places."""
        ticket = self.ticket
        self._prefilling = self._decoding = True
        self.prefill.prefills += 1
        self.prefill.prefill_tokens += ticket.tokens
        self.prefill.prefill_s += ticket.prefill_s
        if self.mode is Mode.SPLIT:
            self._source_kv = float(ticket.tokens)
            self.prefill.kv_tokens += self._source_kv
        self._reader_kv = ticket.tokens + ticket.output
        self.decode.kv_tokens += self._reader_kv
        self.decode.running += 1
        return self

    def prefilled(self) -> None:
        """The first token is there; its KV waits to be pulled."""
        self._end_prefill()
        if self.mode is Mode.SPLIT and not self._waiting:
            self._waiting = True
            self.prefill.waiting_pull += 1

    def pulled(self) -> None:
        """The KV is with the decode instance, or not needed any more."""
        if self._waiting:
            self._waiting = False
            self.prefill.waiting_pull -= 1
        if self._decoding and not self._there:
            self._there = True
            self.decode.decoding += 1
        self.prefill.kv_tokens -= self._source_kv
        self._source_kv = 0.0

    def is_held(self) -> bool:
        """Whether the prefill instance still keeps the KV for a reader."""
        return self._waiting

    def move(self, decode: Instance) -> None:
        """Another instance decodes."""
        self._end_decode()
        self.decode = decode
        self._decoding = True
        self._reader_kv = self.ticket.tokens + self.ticket.output
        decode.kv_tokens += self._reader_kv
        decode.running += 1

    def close(self) -> None:
        """Give up whatever places are still taken. Twice is harmless."""
        self._end_prefill()
        self.pulled()
        self._end_decode()

    def _end_prefill(self) -> None:
        if self._prefilling:
            self._prefilling = False
            self.prefill.prefills -= 1
            self.prefill.prefill_tokens -= self.ticket.tokens
            self.prefill.prefill_s -= self.ticket.prefill_s

    def _end_decode(self) -> None:
        if self._decoding:
            self._decoding = False
            self.decode.running -= 1
            self.decode.decoding -= self._there
            self._there = False
            self.decode.kv_tokens -= self._reader_kv
            self._reader_kv = 0.0


class Placer:
    """Chooses among the registered instances."""

    def __init__(self, registry: Registry, links: Links, costs: Costs, window_tokens: int) -> None:
        """Args:
        window_tokens: prompt tokens that are with one instance at the same time; a longer prompt goes alone.
        """
        self._registry = registry
        self._links = links
        self._costs = costs
        self._window = window_tokens
        self._salt = 0

    def usable(self, model: str, now: float) -> list[Instance]:
        """Instances that take requests for the model now, for the role that they have or for the one that they get."""
        return [
            i
            for i in self._registry
            if (i.usable(now) or (self._costs.overlap > 0 and i.joins(now))) and model_name(i.status.model) == model
        ]

    def place(self, ticket: Ticket, now: float) -> Placement | None:
        """Take places for the request; None while there is none."""
        there = self.usable(ticket.model, now)
        if not there:
            return None
        preferred = [i for i in there if (i.id, i.epoch) not in ticket.avoid]
        mode, candidates = self._mode(preferred)
        if mode is None and len(preferred) < len(there):
            # Whoever is left has failed this request before, and may do better this time.
            mode, candidates = self._mode(there)
        if mode is None:
            return None
        found = self._split(ticket, candidates) if mode is Mode.SPLIT else None
        if found is None:
            alone = candidates if mode is not Mode.SPLIT else _of(candidates, Role.HYBRID)
            found = self._alone(ticket, alone, Mode.HYBRID if mode is Mode.SPLIT else mode)
        return found.begin() if found else None

    def another_decode(self, placement: Placement, now: float) -> Instance | None:
        """For a request whose decode instance failed before it generated: another one that can pull the same KV."""
        ticket = placement.ticket
        usable = [
            i
            for i in _of(self.usable(ticket.model, now), Role.DECODE)
            if i is not placement.decode
            and (i.id, i.epoch) not in ticket.avoid
            and self._links.between(placement.prefill, i)
        ]
        return self._decode(ticket, usable)

    def _mode(self, there: Sequence[Instance]) -> tuple[Mode | None, Sequence[Instance]]:
        """How requests are served at the moment, and the instances that come into question."""
        hybrids = _of(there, Role.HYBRID)
        prefills, decodes = _of(there, Role.PREFILL), _of(there, Role.DECODE)
        if prefills and decodes:
            if self._links.too_slow:
                return Mode.BANDWIDTH, _settled(there)
            if any(self._links.between(p, d) for p in prefills for d in decodes):
                return Mode.SPLIT, there
            if self._links.pending() and not hybrids:
                return None, ()
        if hybrids:
            return Mode.HYBRID, hybrids
        alone = _settled(decodes) or _settled(prefills)
        return (Mode.NO_PAIR, alone) if alone else (None, ())

    def _split(self, ticket: Ticket, there: Sequence[Instance]) -> Placement | None:
        decodes = _of(there, Role.DECODE)
        best: tuple[float, int, Instance] | None = None
        for instance in _of(there, Role.PREFILL):
            if not self._has_room(instance, ticket):
                continue
            if not any(self._links.between(instance, d) for d in decodes):
                continue
            hit = instance.hit(ticket.prefixes)
            finish = self._held_up_s(instance) + instance.prefill_s + ticket.prefill_s * (1.0 - hit)
            rank = (finish, -instance.status.free_blocks)
            if best is None or rank < best[:2]:
                best = (*rank, instance)
        if best is None:
            return None
        prefill = best[2]
        decode = self._decode(ticket, [d for d in decodes if self._links.between(prefill, d)])
        if decode is None:
            return None
        return Placement(ticket, prefill, decode, Mode.SPLIT, prefill.hit(ticket.prefixes))

    def _held_up_s(self, instance: Instance) -> float:
        """Seconds before a prompt's turn comes between the decode steps of an instance that joins the prefill pool."""
        if not instance.running:
            return 0.0
        return PATIENT_STEPS * self._costs.step(instance.running, instance.kv_tokens)

    def _decode(self, ticket: Ticket, candidates: Iterable[Instance]) -> Instance | None:
        need = ticket.tokens + ticket.output
        free = [
            i
            for i in candidates
            if i.running < i.status.max_batch_size and (i.kv_tokens + need <= i.capacity_tokens or not i.running)
        ]
        if not free:
            return None
        costs = replace(
            self._costs,
            max_sequences=max(i.status.max_batch_size for i in free),
            kv_capacity_tokens=max(i.capacity_tokens for i in free),
        )
        moved = costs.transfer_s(ticket.load)
        hits = {i: moved * i.hit(ticket.prefixes) for i in free}
        self._salt += 1
        return choose_decode(free, ticket.tokens, ticket.output, costs, self._salt, hits)

    def _alone(self, ticket: Ticket, candidates: Sequence[Instance], mode: Mode) -> Placement | None:
        best: tuple[float, float, Instance] | None = None
        for instance in candidates:
            if not self._has_room(instance, ticket) or instance.running >= instance.status.max_batch_size:
                continue
            hit = instance.hit(ticket.prefixes)
            load = (instance.running + instance.prefills) / instance.status.max_batch_size
            rank = (instance.prefill_s + ticket.prefill_s * (1.0 - hit) * (1.0 + load), load)
            if best is None or rank < best[:2]:
                best = (*rank, instance)
        if best is None:
            return None
        return Placement(ticket, best[2], best[2], mode, best[2].hit(ticket.prefixes))

    def _has_room(self, instance: Instance, ticket: Ticket) -> bool:
        """For another prompt. One that no room would be enough for goes when nothing else is there."""
        if instance.prefills == 0 and instance.kv_tokens <= 0:
            return True
        return (
            instance.prefills < instance.status.max_batch_size
            and (instance.prefills == 0 or instance.prefill_tokens + ticket.tokens <= self._window)
            and instance.kv_tokens + ticket.tokens <= instance.capacity_tokens
        )


def _of(instances: Iterable[Instance], role: Role) -> list[Instance]:
    """Those in this role's pool, or on the way into it."""
    return [instance for instance in instances if instance.role is role]


def _settled(instances: Iterable[Instance]) -> list[Instance]:
    """Those that no change of role is under way with: what is given to one as a whole would hold the change up."""
    return [instance for instance in instances if instance.role_wanted is None]
