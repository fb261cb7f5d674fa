"""The clock calls what is due, in order, and forgets what was cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from engine.interconnect.clock import TIDY_FROM, Clock


@pytest.fixture
def clock() -> Iterator[Clock]:
    made = Clock("test")
    yield made
    made.close()


def test_calls_come_in_the_order_of_their_times(clock: Clock) -> None:
    called: list[int] = []
    done = threading.Event()
    now = time.monotonic()
    clock.at(now + 0.06, done.set)
    for number in (3, 1, 2):
        clock.at(now + number / 100, lambda number=number: called.append(number))  # type: ignore[misc]
    assert done.wait(10)
    assert called == [1, 2, 3]


def test_a_cancelled_call_never_comes(clock: Clock) -> None:
    called, done = threading.Event(), threading.Event()
    timer = clock.at(time.monotonic() + 0.02, called.set)
    timer.cancel()
    timer.cancel()
    clock.at(time.monotonic() + 0.05, done.set)
    assert done.wait(10)
    assert not called.is_set()


def test_a_call_that_fails_stops_no_other(clock: Clock) -> None:
    done = threading.Event()
    clock.at(time.monotonic(), lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    clock.at(time.monotonic() + 0.01, done.set)
    assert done.wait(10)


def test_cancelled_calls_do_not_pile_up(clock: Clock) -> None:
    kept = [clock.at(time.monotonic() + 600, lambda: None) for _ in range(10)]
    for _ in range(20 * TIDY_FROM):
        clock.at(time.monotonic() + 600, lambda: None).cancel()
    assert len(clock._due) < 3 * TIDY_FROM
    assert all(timer.call is not None for timer in kept)
