from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engine.balancer.costs import Costs
from engine.balancer.routing import PATIENCE, PrefillQueue, choose_decode


@dataclass
class Item:
    since: float
    prefill_s: float
    tokens: int = 100


@dataclass(eq=False)
class Decoder:
    running: int = 0
    kv_tokens: float = 0.0
    decode_speed: float = 1.0


def drain(queue: PrefillQueue[Item], tokens: int = 1) -> list[Item]:
    return [item for _ in range(len(queue)) for item in queue.pop_batch(tokens)]


def test_small_requests_overtake_a_giant_one() -> None:
    queue: PrefillQueue[Item] = PrefillQueue()
    giant, small = Item(0.0, 10.0), Item(1.0, 0.01)
    queue.push(giant)
    queue.push(small)
    assert drain(queue) == [small, giant]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.001, 10)), min_size=1, max_size=50))
def test_nothing_is_overtaken_by_what_comes_much_later(arrivals: list[tuple[float, float]]) -> None:
    queue: PrefillQueue[Item] = PrefillQueue()
    for at, work in arrivals:
        queue.push(Item(at, work))
    order = drain(queue)
    for index, first in enumerate(order):
        for later in order[index + 1 :]:
            assert first.since <= later.since + PATIENCE * later.prefill_s + 1e-9
    assert len(order) == len(arrivals)


def test_a_batch_stays_within_its_tokens_and_a_longer_request_goes_alone() -> None:
    queue: PrefillQueue[Item] = PrefillQueue()
    for tokens in (900, 60, 60):
        queue.push(Item(0.0, tokens / 1e6, tokens))
    assert [i.tokens for i in queue.pop_batch(100)] == [60]
    assert [i.tokens for i in queue.pop_batch(100)] == [60]
    assert [i.tokens for i in queue.pop_batch(100)] == [900]
    assert queue.tokens == 0


def test_decode_goes_where_it_finishes_first() -> None:
    costs = Costs()
    idle, busy, fast = Decoder(), Decoder(60, 200_000), Decoder(60, 200_000, decode_speed=3.0)
    assert choose_decode([busy, idle], 300, 100, costs, 0, None) is idle
    assert choose_decode([idle, fast], 300, 100, costs, 0, None) is fast


def test_full_instances_are_not_chosen() -> None:
    costs = Costs(max_sequences=4, kv_capacity_tokens=1000)
    assert choose_decode([Decoder(4), Decoder(1, 900)], 300, 100, costs, 0, None) is None
    # A request larger than all memory that is left may still have an empty instance to itself.
    alone = Decoder()
    assert choose_decode([alone], 3000, 100, costs, 0, None) is alone


def test_kv_that_is_there_already_decides_between_equals() -> None:
    near, far = Decoder(3, 900), Decoder(3, 900)
    assert choose_decode([far, near], 300, 100, Costs(), 0, {near: 0.05}) is near


def test_among_many_a_free_instance_is_found_even_outside_the_sample() -> None:
    many = [Decoder(64) for _ in range(100)]
    many[37].running = 0
    assert choose_decode(many, 300, 100, Costs(), 0, None) is many[37]
