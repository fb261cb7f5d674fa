from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from engine.balancer.costs import Costs
from engine.balancer.load import NOTHING, load_of
from engine.balancer.output_length import OutputLength
from engine.balancer.predictor import Predictor
from engine.balancer.time_series import Arima, Constant, Ewma, Holt, KalmanTrend, TimeSeries, default_models

COSTS = Costs()


@pytest.mark.parametrize("model", default_models(), ids=lambda model: model.name)
def test_every_model_settles_on_a_constant(model: TimeSeries) -> None:
    assert model.forecast(5) == 0.0
    for _ in range(200):
        model.update(7.0)
    assert model.forecast(5) == pytest.approx(7.0, rel=1e-3)


@pytest.mark.parametrize("model", [Holt(damping=1.0), KalmanTrend()], ids=lambda model: model.name)
def test_models_with_a_trend_are_ahead_of_the_last_value(model: TimeSeries) -> None:
    for step in range(300):
        model.update(float(step))
    assert model.forecast(4) == pytest.approx(299 + 2.5, abs=1.5)


def test_arima_follows_a_trend() -> None:
    pytest.importorskip("statsmodels")
    model = Arima(history=60)
    rng = random.Random(0)
    for step in range(60):
        model.update(step + rng.gauss(0, 0.1))
    assert model.forecast(2) > 58


def feed(values: Sequence[float], models: Sequence[type] | None = None) -> Predictor:
    predictor = Predictor(COSTS)
    one = load_of(500, 40, 200)
    for value in values:
        predictor.observe(1.0, one.scaled(value))
    return predictor


def test_the_forecast_is_the_rate_that_arrived() -> None:
    rate = feed([10.0] * 60).forecast().rate
    assert rate.requests == pytest.approx(10, rel=0.02)
    assert rate.output == pytest.approx(2000, rel=0.02)


def test_another_model_is_used_only_when_it_beats_constant_in_the_back_test() -> None:
    rng = random.Random(1)
    predictor = feed([max(0.0, rng.gauss(10, 5)) for _ in range(300)])
    chosen, errors = predictor.forecast().model, predictor.errors
    assert errors[chosen] == min(errors.values()) or chosen == "constant"
    steep = feed([1.0 + 2 * step for step in range(120)])
    assert steep.forecast().model != "constant"
    assert steep.errors[steep.forecast().model] < 0.95 * steep.errors["constant"]


def test_no_traffic_broken_numbers_and_empty_intervals_forecast_nothing() -> None:
    predictor = Predictor(COSTS)
    assert predictor.forecast().rate == NOTHING
    predictor.observe(0.0, load_of(1, 1, 1))
    predictor.observe(1.0, load_of(math.nan, 1, 1))
    assert predictor.forecast().rate == NOTHING
    for _ in range(20):
        predictor.observe(1.0, NOTHING)
    assert all(value == 0 for value in predictor.forecast().rate)


def test_output_lengths_start_from_the_task_and_follow_what_finishes() -> None:
    lengths = OutputLength()
    assert lengths.predict("table", 1500) > 3 * lengths.predict("text", 1500)
    for _ in range(200):
        lengths.learn("table", 1500, 300)
        lengths.learn("text", 200, 90)
    assert lengths.predict("table", 1500) == pytest.approx(300, rel=0.1)
    assert lengths.predict("text", 200) == pytest.approx(90, rel=0.1)
    assert lengths.predict("text", 2000) > lengths.predict("text", 200)


def test_a_long_prompt_of_an_unknown_task_does_not_foretell_a_long_answer() -> None:
    lengths = OutputLength()
    for _ in range(200):
        lengths.learn("chat", 500, 40)
    assert lengths.predict("chat", 40_000) < 60


def test_constant_is_first_so_that_it_is_what_others_must_beat() -> None:
    assert isinstance(default_models()[0], Constant)
    assert any(isinstance(model, Ewma) for model in default_models())
