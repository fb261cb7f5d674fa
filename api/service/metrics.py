"""What `/metrics` tells Prometheus: requests of this process, and the job store's counts at the time of asking."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one API process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pagemill_http_requests", "Requests answered.", ("method", "path", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "pagemill_http_request_seconds",
            "Time to the first byte of an answer, by route. Streams of events are not counted.",
            ("method", "path"),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.upload_bytes = Counter("pagemill_upload_bytes", "Bytes of accepted files.", registry=self.registry)
        self.accepted = Counter("pagemill_documents_accepted", "Documents accepted.", registry=self.registry)
        self.event_streams = Gauge("pagemill_event_streams", "Open event streams.", registry=self.registry)

    def render(self, counts: Mapping[str, Mapping[str, float]]) -> bytes:
        """Prometheus' text format.

        Args:
            counts: values of the store by metric name (without prefix) and by label value.
        """
        return generate_latest(self.registry) + generate_latest(_StoreRegistry(counts))


class _StoreRegistry(CollectorRegistry):
    def __init__(self, counts: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__()
        self.register(_StoreCounts(counts))


class _StoreCounts(Collector):
    def __init__(self, counts: Mapping[str, Mapping[str, float]]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        for name, values in self._counts.items():
            family = GaugeMetricFamily(f"pagemill_{name}", f"{name.replace('_', ' ')} by kind.", labels=["kind"])
            for kind, value in values.items():
                family.add_metric([kind], value)
            yield family


class CountRequests:
    """ASGI middleware: counts and times requests under their route's template, never under raw paths."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started, status, first_byte = time.perf_counter(), 500, 0.0

        async def watched(message: Message) -> None:
            nonlocal status, first_byte
            if message["type"] == "http.response.start":
                status, first_byte = message["status"], time.perf_counter() - started
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(scope["method"], path, str(status)).inc()
            if not path.endswith("/events"):
                self._metrics.seconds.labels(scope["method"], path).observe(first_byte)
