"""What `/metrics` tells Prometheus of the router."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

Sample = tuple[dict[str, str], float]


class Metrics:
    """The metrics of one router. `gauges` are read at the time of asking."""

    def __init__(self, gauges: Callable[[], Iterable[tuple[str, str, list[Sample]]]]) -> None:
        """Args:
        gauges: (name without prefix, help, samples) of everything that has a value now.
        """
        self.registry = CollectorRegistry()
        self.registry.register(_Gauges(gauges))
        self.ttft = self._histogram("ttft_seconds", "Arrival to first token.", ("mode",))
        self.tpot = self._histogram("tpot_seconds", "Mean time from one token of an answer to the next.", ("mode",))
        self.queue_wait = self._histogram("queue_wait_seconds", "Waiting for places at instances.")
        self.prefill = self._histogram("prefill_seconds", "Prefill, waiting at the instance included.")
        self.pull = self._histogram("pull_seconds", "Moving the KV of one request.")
        self.prefix_hit = Histogram(
            "pagemill_router_prefix_hit_share",
            "Share of a prompt's parts whose KV the instance had that it was given to.",
            buckets=(0.0, 0.25, 0.5, 0.75, 0.999, 1.0),
            registry=self.registry,
        )
        self.requests = self._counter("requests", "Requests that ended, by code; `ok` is one.", ("code",))
        self.placed = self._counter("placed", "Requests given to instances, by mode.", ("mode",))
        self.retries = self._counter("retries", "Tries after a failure, by what failed.", ("stage", "code"))
        self.fallbacks = self._counter("fallbacks", "Prompts computed again where their KV could not be pulled.")
        self.aborted = self._counter("aborted", "Requests whose client left.")
        self.kv_bytes = self._counter("kv_bytes", "KV pulled by decode instances.")
        self.kv_seconds = self._counter("kv_pull_seconds", "Seconds of pulling; bytes over it is the bandwidth in use.")
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self.cached_tokens = self._counter("cached_prompt_tokens", "Those whose KV was there already.")
        self.output_tokens = self._counter("output_tokens", "Tokens generated.")

    def render(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(f"pagemill_router_{name}", help, labels, buckets=_SECONDS, registry=self.registry)

    def _counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"pagemill_router_{name}", help, labels, registry=self.registry)


class _Gauges(Collector):
    def __init__(self, gauges: Callable[[], Iterable[tuple[str, str, list[Sample]]]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for name, help, samples in self._gauges():
            labels = sorted(samples[0][0]) if samples else []
            family = GaugeMetricFamily(f"pagemill_router_{name}", help, labels=labels)
            for values, value in samples:
                family.add_metric([values[label] for label in labels], value)
            yield family

    def describe(self) -> Iterable[Metric]:
        return []
