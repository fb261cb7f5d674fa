"""The bench of the stack kills real instances and counts what becomes of requests."""

from __future__ import annotations

import pytest

pytest.importorskip("lmdeploy")

from bench.engine_stack import measure


def test_requests_end_right_or_typed_and_no_block_is_held() -> None:
    report = measure(requests=40, only=("kills",))
    figures = {figure.name: figure.value for figure in report.figures}
    assert figures["requests_under_kills"] == 40
    assert figures["wrong_answers_under_kills"] == figures["untyped_ends_under_kills"] == 0
    assert figures["blocks_held_after_kills"] == 0
    assert sum(report.details["kills"]["ends"].values()) == 40
