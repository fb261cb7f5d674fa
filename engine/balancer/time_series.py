"""Models that carry a series a few intervals on. Each is told one value an interval and asked for a later one."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class TimeSeries(Protocol):
    """A model of one series."""

    name: str

    def update(self, value: float) -> None:
        """The value of the next interval."""

    def forecast(self, lead: int) -> float:
        """The mean expected over the next `lead` intervals. 0 before the first value."""


class Constant:
    """As it was, on the mean of the last few intervals. What every other model has to beat."""

    name = "constant"

    def __init__(self, window: int = 5) -> None:
        self._values: deque[float] = deque(maxlen=window)

    def update(self, value: float) -> None:
        self._values.append(value)

    def forecast(self, lead: int) -> float:
        return sum(self._values) / len(self._values) if self._values else 0.0


class Ewma:
    """Exponentially weighted mean."""

    def __init__(self, alpha: float) -> None:
        self.name = f"ewma({alpha:g})"
        self._alpha = alpha
        self._level: float | None = None

    def update(self, value: float) -> None:
        self._level = value if self._level is None else self._level + self._alpha * (value - self._level)

    def forecast(self, lead: int) -> float:
        return self._level or 0.0


class Holt:
    """Level and damped trend, both exponentially smoothed (Holt's linear method with a damped trend)."""

    name = "holt"

    def __init__(self, alpha: float = 0.3, beta: float = 0.1, damping: float = 0.9) -> None:
        self._alpha, self._beta, self._damping = alpha, beta, damping
        self._level: float | None = None
        self._trend = 0.0

    def update(self, value: float) -> None:
        if self._level is None:
            self._level = value
            return
        before = self._level
        expected = before + self._damping * self._trend
        self._level = expected + self._alpha * (value - expected)
        self._trend += self._beta * (self._level - before - self._damping * self._trend)

    def forecast(self, lead: int) -> float:
        if self._level is None:
            return 0.0
        ahead, step, total = 0.0, 1.0, 0.0
        for _ in range(max(1, lead)):
            step *= self._damping
            ahead += step * self._trend
            total += ahead
        return max(0.0, self._level + total / max(1, lead))


class KalmanTrend:
    """Local linear trend by a Kalman filter; the noise of the observations is learned from the innovations."""

    name = "kalman"

    def __init__(self, level_share: float = 0.1, trend_share: float = 0.001) -> None:
        """Args:
        level_share, trend_share: variance of the steps of level and trend, as shares of that of the noise.
        """
        self._level_share, self._trend_share = level_share, trend_share
        self._level: float | None = None
        self._trend = 0.0
        self._p = (1.0, 0.0, 1.0)
        self._noise = 0.0

    def update(self, value: float) -> None:
        if self._level is None:
            self._level, self._noise = value, max(1e-9, 0.1 * value * value)
            self._p = (self._noise, 0.0, 0.01 * self._noise)
            return
        p11, p12, p22 = self._p
        p11, p12, p22 = (
            p11 + 2 * p12 + p22 + self._level_share * self._noise,
            p12 + p22,
            p22 + self._trend_share * self._noise,
        )
        expected = self._level + self._trend
        innovation = value - expected
        total = p11 + self._noise
        gain, gain_trend = p11 / total, p12 / total
        self._level = expected + gain * innovation
        self._trend += gain_trend * innovation
        self._p = ((1 - gain) * p11, (1 - gain) * p12, p22 - gain_trend * p12)
        # The innovation's variance is that of the prediction plus the noise.
        self._noise += 0.05 * (max(1e-9, innovation * innovation - p11) - self._noise)
        self._noise = max(1e-9, self._noise)

    def forecast(self, lead: int) -> float:
        if self._level is None:
            return 0.0
        return max(0.0, self._level + self._trend * (max(1, lead) + 1) / 2)


class Arima:
    """ARIMA(1,1,1) by statsmodels, fitted again every few intervals. Needs the extra `balancer`."""

    name = "arima"

    def __init__(self, history: int = 120, refit_every: int = 30) -> None:
        """Raises:
        ModuleNotFoundError: statsmodels is not installed.
        """
        from statsmodels.tsa.arima.model import ARIMA

        self._model = ARIMA
        self._values: deque[float] = deque(maxlen=history)
        self._refit_every = refit_every
        self._since_fit = 0
        self._parameters: object = None

    def update(self, value: float) -> None:
        self._values.append(value)
        self._since_fit += 1

    def forecast(self, lead: int) -> float:
        import warnings

        if len(self._values) < 20:
            return sum(self._values) / len(self._values) if self._values else 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self._model(list(self._values), order=(1, 1, 1))
            if self._parameters is None or self._since_fit >= self._refit_every:
                self._parameters = model.fit().params
                self._since_fit = 0
            ahead = model.filter(self._parameters).forecast(max(1, lead))
        return max(0.0, float(sum(ahead) / len(ahead)))


def default_models() -> list[TimeSeries]:
    """One of each that needs no extra; "constant" first."""
    return [Constant(), Ewma(0.1), Ewma(0.4), Holt(), KalmanTrend()]
