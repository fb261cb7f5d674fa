"""Pages in work are bounded by memory, and never to none."""

from __future__ import annotations

import threading

from pipeline.processes import PageProcesses
from workers.memory import MemoryGate, available_bytes

GIB = 2**30


def gate(free: int) -> MemoryGate:
    return MemoryGate(PageProcesses(4), 0, 3 * GIB, available=lambda: free)


def test_one_page_is_let_in_whatever_memory_there_is() -> None:
    assert gate(0).enter(threading.Event())


def test_another_waits_until_the_first_has_left() -> None:
    tight, stopping = gate(0), threading.Event()
    assert tight.enter(stopping)
    entered: list[bool] = []
    second = threading.Thread(target=lambda: entered.append(tight.enter(stopping)))
    second.start()
    second.join(0.5)
    assert entered == []
    tight.leave()
    second.join(30)
    assert entered == [True]


def test_many_are_let_in_where_there_is_memory() -> None:
    roomy, stopping = gate(64 * GIB), threading.Event()
    assert [roomy.enter(stopping) for _ in range(4)] == [True] * 4


def test_who_waits_gives_up_when_the_worker_stops() -> None:
    tight, stopping = gate(0), threading.Event()
    assert tight.enter(stopping)
    stopping.set()
    assert not tight.enter(stopping)


def test_the_machine_says_what_it_has() -> None:
    assert available_bytes() > 0
