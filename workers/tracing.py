"""OpenTelemetry spans around pieces of work, where the extra `otel` is installed and an endpoint is set.

Without either, a span costs nothing. The endpoint and all else are OpenTelemetry's own settings
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, ...).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


def configure_tracing(service: str) -> bool:
    """Export spans if an endpoint is set; answers whether they are.

    Args:
        service: name under which spans appear, unless OTEL_SERVICE_NAME gives another.

    Raises:
        ModuleNotFoundError: an endpoint is set and the extra is not installed.
    """
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return False
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME", service)
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


@contextlib.contextmanager
def span(name: str, **attributes: Any) -> Iterator[None]:
    """A span of this name around the `with` block; an exception is recorded on it and goes on."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        yield
        return
    with trace.get_tracer("pagemill").start_as_current_span(name, attributes=attributes):
        yield
