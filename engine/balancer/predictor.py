"""What will arrive in the next seconds: the best of a few models by rolling back-test, held against "constant"."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from engine.balancer.costs import Costs
from engine.balancer.load import Load, total
from engine.balancer.state import Forecast
from engine.balancer.time_series import TimeSeries, default_models

MUST_BEAT = 0.95
"""Share of the error of "constant" that another model must stay below to be preferred."""


class _BackTest:
    """Two series (prefill and decode work) under each model, with the errors that they made at the lead."""

    def __init__(self, make: Callable[[], Sequence[TimeSeries]], lead: int) -> None:
        self.models = list(zip(make(), make(), strict=True))
        self.names = [pair[0].name for pair in self.models]
        self.errors = [math.nan] * len(self.models)
        self.lead = lead
        self._actual: deque[tuple[float, float]] = deque(maxlen=lead)
        self._asked: deque[list[tuple[float, float]]] = deque(maxlen=lead)

    def update(self, prefill: float, decode: float) -> None:
        self._actual.append((prefill, decode))
        if len(self._asked) == self.lead:
            # The oldest forecasts were for the mean of exactly the values that are held now.
            means = [sum(column) / self.lead for column in zip(*self._actual, strict=True)]
            for index, said in enumerate(self._asked[0]):
                error = sum(abs(s - m) / (abs(m) + 1e-3) for s, m in zip(said, means, strict=True)) / 2
                error = min(error, 2.0)
                known = self.errors[index]
                self.errors[index] = error if math.isnan(known) else known + 0.05 * (error - known)
        for of_prefill, of_decode in self.models:
            of_prefill.update(prefill)
            of_decode.update(decode)
        self._asked.append([(a.forecast(self.lead), b.forecast(self.lead)) for a, b in self.models])

    def best(self) -> tuple[int, tuple[float, float]]:
        best = 0
        for index, error in enumerate(self.errors):
            if error < self.errors[best] and error < MUST_BEAT * self.errors[0]:
                best = index
        return best, self._asked[-1][best]


class Predictor:
    """Told the load of each interval, answers the rate expected next.

    The mix of lengths is that of the last few intervals; how much of it there will be, for prefill and for decode
    work apart, comes from the model that erred least so far.
    """

    def __init__(
        self,
        costs: Costs,
        models: Callable[[], Sequence[TimeSeries]] = default_models,
        lead: int = 5,
        mix_intervals: int = 5,
    ) -> None:
        """Args:
        costs: turn loads into work.
        models: makes one of each model; the first is the one to beat.
        lead: intervals ahead that a forecast is for.
        mix_intervals: intervals that the mix of lengths is taken from.
        """
        self._costs = costs
        self._test = _BackTest(models, lead)
        self._recent: deque[tuple[float, Load]] = deque(maxlen=mix_intervals)

    def observe(self, seconds: float, load: Load) -> None:
        """What arrived in an interval. Empty intervals and broken numbers are not observations."""
        if seconds <= 0 or not all(map(math.isfinite, (seconds, load.requests, load.output, load.visual))):
            return
        self._recent.append((seconds, load))
        self._test.update(self._costs.prefill_s(load) / seconds, self._costs.decode_s(load) / seconds)

    def forecast(self) -> Forecast:
        """The expected rate; zero before anything was observed and while nothing arrives."""
        if not self._recent:
            return Forecast()
        seconds = sum(length for length, _ in self._recent)
        rate = total(load for _, load in self._recent).scaled(1 / seconds)
        index, (prefill, decode) = self._test.best()
        error = self._test.errors[index]
        present = self._costs.prefill_s(rate), self._costs.decode_s(rate)
        factors = [ahead / now if now > 1e-9 else 0.0 for ahead, now in zip((prefill, decode), present, strict=True)]
        return Forecast(rate.scaled(*factors), self._test.names[index], 0.0 if math.isnan(error) else error)

    @property
    def errors(self) -> dict[str, float]:
        """Mean relative error of each model in the back-test; NaN while unknown."""
        return dict(zip(self._test.names, self._test.errors, strict=True))
