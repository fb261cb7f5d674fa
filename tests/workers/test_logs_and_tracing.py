"""What operators see of the work: logs that machines can read, spans where they are asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_json_logs_are_one_object_a_line_with_the_ids_as_fields() -> None:
    done = run(
        "import logging\n"
        "from workers.logs import LogFormat, configure_logs\n"
        "configure_logs('info', LogFormat.JSON)\n"
        "logging.getLogger('workers.tasks.page').info('page %s', 'read', extra={'job': 'abc', 'page': 3})\n"
    )
    line = json.loads(done.stderr)
    assert line["message"] == "page read"
    assert (line["job"], line["page"], line["level"], line["logger"]) == ("abc", 3, "INFO", "workers.tasks.page")


def test_text_logs_are_lines_for_people() -> None:
    done = run(
        "import logging\n"
        "from workers.logs import LogFormat, configure_logs\n"
        "configure_logs('warning', LogFormat.TEXT)\n"
        "logging.getLogger('x').info('not this')\n"
        "logging.getLogger('x').warning('but this')\n"
    )
    assert done.stderr.strip().endswith("WARNING x: but this")
    assert "not this" not in done.stderr


def test_without_an_endpoint_nothing_is_traced_and_spans_cost_nothing() -> None:
    done = run(
        "from workers.tracing import configure_tracing, span\n"
        "print(configure_tracing('t'))\n"
        "with span('pagemill.page', pages=[1]): print('inside')\n",
        OTEL_EXPORTER_OTLP_ENDPOINT="",
    )
    assert done.stdout.split() == ["False", "inside"]


def test_spans_carry_what_was_worked_on_and_what_went_wrong() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
    done = run(
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "from workers.tracing import span\n"
        "exporter = InMemorySpanExporter(); provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(exporter)); trace.set_tracer_provider(provider)\n"
        "try:\n"
        "    with span('pagemill.page', job='abc', pages=[1, 2]): raise ValueError('broken')\n"
        "except ValueError: pass\n"
        "found, = exporter.get_finished_spans()\n"
        "print(found.name, found.attributes['job'], list(found.attributes['pages']), found.events[0].name)\n"
    )
    assert done.stdout.strip() == "pagemill.page abc [1, 2] exception"
