"""Totals of one instance since its start, by the names that /metrics uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

PREFIX = "pagemill_engine_"

TOTALS: Mapping[str, str] = {
    "requests_total": "Requests admitted.",
    "requests_failed_total": "Requests that ended with an error.",
    "requests_aborted_total": "Requests that were aborted.",
    "prefills_total": "Prompts computed here.",
    "prompt_tokens_total": "Tokens of prompts computed here, without those whose KV was cached.",
    "cached_tokens_total": "Tokens of prompts whose KV was cached.",
    "image_tokens_total": "Tokens of images in prompts computed here.",
    "generated_tokens_total": "Tokens generated.",
    "pulls_total": "Prompts whose KV was pulled.",
    "pulled_bytes_total": "Bytes of KV pulled.",
    "pull_seconds_total": "Seconds of pulling.",
    "fallbacks_total": "Pulls that failed, so that the prompt was computed here.",
    "leases_total": "Prefills whose KV was leased.",
    "leases_expired_total": "Leases that ended unread.",
    "role_changes_total": "Changes of role.",
    "canaries_total": "Canary inferences.",
    "canaries_failed_total": "Canary inferences that were wrong or failed.",
    "vision_runs_total": "Runs of the vision encoder.",
    "graph_steps_total": "Decode steps that ran as a graph.",
    "graph_misses_total": "Decode steps that ran eagerly in graph mode.",
    "evicted_sequences_total": "Sequences that were pushed out for others, to be computed again.",
    "evicted_blocks_total": "Blocks of cached beginnings that gave way.",
    "weights_loaded_total": "How often weights were loaded.",
}


GAUGES: Mapping[str, str] = {
    "running": "Requests that are being computed.",
    "waiting": "Requests admitted that are not computed yet.",
    "free_blocks": "Blocks of the KV cache that are free, or only kept for prompts that begin alike.",
    "total_blocks": "Blocks of the KV cache.",
    "leases": "Prefills whose KV is kept for a reader.",
    "healthy": "1 while the last canary was right and is not too old.",
    "canary_age_seconds": "Seconds since the last canary.",
    "uptime_seconds": "Seconds since the start.",
}


class Counters:
    """Only ever go up. All calls come from one thread."""

    def __init__(self) -> None:
        self._totals = dict.fromkeys(TOTALS, 0.0)

    def add(self, name: str, amount: float = 1) -> None:
        """Raises KeyError for a name that is not in `TOTALS`."""
        self._totals[name] += amount

    def set(self, name: str, total: float) -> None:
        """For totals that somebody else keeps."""
        self._totals[name] = total

    def snapshot(self) -> dict[str, float]:
        return dict(self._totals)


def prometheus_text(totals: Mapping[str, float], gauges: Mapping[str, float], info: Mapping[str, str]) -> bytes:
    """The text format of Prometheus.

    Args:
        totals: as `Counters.snapshot` gives them.
        gauges: values of the moment, by name without the prefix.
        info: labels of one more gauge whose value is 1.
    """

    class Moment(Collector):
        def collect(self) -> Iterator[Metric]:
            for name, value in totals.items():
                yield CounterMetricFamily(PREFIX + name.removesuffix("_total"), TOTALS[name], value)
            for name, value in gauges.items():
                yield GaugeMetricFamily(PREFIX + name, GAUGES[name], value)
            labelled = GaugeMetricFamily(PREFIX + "info", "What this instance is.", labels=list(info))
            labelled.add_metric(list(info.values()), 1)
            yield labelled

    registry = CollectorRegistry()
    registry.register(Moment())
    return generate_latest(registry)
