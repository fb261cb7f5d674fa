from __future__ import annotations

import math

import pytest

from engine.balancer.load import load_of
from engine.balancer.monitor import DecayedHistogram, Monitor
from engine.balancer.state import InstanceState, Phase
from engine.role import Role


def test_arrivals_count_when_they_arrive_not_when_they_start() -> None:
    monitor = Monitor()
    monitor.close(0.0)
    monitor.arrived([load_of(100, 10, 50)] * 3)
    seconds, load = monitor.close(2.0)
    assert (seconds, load.requests, load.output) == (2.0, 3, 150)
    monitor.started([load_of(100, 10, 50)] * 3)
    assert monitor.close(3.0)[1].requests == 0


def test_what_waits_is_what_arrived_and_has_not_begun() -> None:
    monitor = Monitor()
    one = load_of(100, 10, 50)
    monitor.arrived([one, one, one])
    monitor.started([one])
    assert monitor.state(0.0, ()).waiting_prefill.requests == 2
    monitor.returned([one])
    assert monitor.state(0.0, ()).waiting_prefill.visual == 300
    monitor.started([one, one])
    monitor.withdrawn([one])
    assert monitor.state(0.0, ()).waiting_prefill.requests == 0


def test_crops_count_with_their_page_before_they_are_sent() -> None:
    monitor = Monitor()
    layout, crop = load_of(1369, 40, 200), load_of(200, 40, 70)
    monitor.close(0.0)
    monitor.expect("page 1")
    monitor.arrived([layout])
    monitor.known("page 1", crop.scaled(10), 0.5)
    assert monitor.state(0.5, ()).coming.output == 700
    monitor.met("page 1")
    monitor.arrived([crop] * 10, expected=True)
    assert monitor.state(0.6, ()).coming.requests == 0
    assert monitor.state(0.6, ()).waiting_prefill.requests == 11
    assert monitor.close(1.0)[1].output == pytest.approx(200 + 700)
    monitor.expect("page 2")
    monitor.arrived([layout])
    assert monitor.state(1.5, ()).coming.output == 700
    assert monitor.close(2.0)[1].output == pytest.approx(200 + 700)


def test_nothing_arriving_is_zero_and_finite() -> None:
    monitor = Monitor()
    assert all(math.isfinite(value) for value in (*monitor.close(0.0)[1], *monitor.close(1.0)[1]))
    assert monitor.state(1.0, ()).waiting_prefill.requests == 0


def test_a_clock_that_goes_back_gives_an_empty_interval() -> None:
    monitor = Monitor()
    monitor.close(10.0)
    assert monitor.close(5.0)[0] == 0.0


def test_a_silent_instance_and_an_outdated_epoch_count_as_lost() -> None:
    monitor = Monitor(silent_after_s=5.0)
    monitor.heard("a", 0, 0.0)
    monitor.heard("b", 1, 9.0)
    monitor.heard("b", 0, 9.5)
    seen = [InstanceState("a", Role.DECODE), InstanceState("b", Role.DECODE), InstanceState("b", Role.DECODE, epoch=1)]
    phases = [i.phase for i in monitor.state(10.0, seen).instances]
    assert phases == [Phase.LOST, Phase.LOST, Phase.READY]


def test_attainment_follows_what_finished() -> None:
    monitor = Monitor()
    for _ in range(300):
        monitor.finished(in_time=False)
    assert monitor.attained < 0.01


def test_histograms_forget() -> None:
    histogram = DecayedHistogram(decay_s=10.0)
    assert math.isnan(histogram.quantile(0.5))
    for _ in range(100):
        histogram.add(1000)
    histogram.decay(100.0)
    for _ in range(10):
        histogram.add(10)
    assert histogram.quantile(0.5) == 16
