from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bench.figures import Figure, Report, at_least, at_most


def test_a_bound_is_met_by_the_bound_itself() -> None:
    assert at_least("facts", 40, "facts", 40).ok
    assert at_most("error", 0.02, "ratio", 0.02).ok


def test_rounding_never_lifts_a_value_over_its_bound() -> None:
    figure = at_least("mean", 0.96999999, "ratio", 0.97)
    assert figure.value == 0.97
    assert not figure.ok


@pytest.mark.parametrize("judge", [at_least, at_most])
def test_what_was_not_measured_is_not_ok(judge: Callable[..., Figure]) -> None:
    assert not judge("speed", None, "ratio", 1.6).ok


def test_a_report_is_ok_only_if_every_figure_is() -> None:
    good, bad = at_least("a", 2, "x", 1), at_least("b", 0, "x", 1)
    assert Report("bench", (good,)).ok
    assert not Report("bench", (good, bad)).ok
    assert not Report("bench", ()).ok


def test_the_json_object_lists_each_figure_with_its_five_keys() -> None:
    report = Report("text", (at_least("mean", 0.5, "ratio", 0.97),), {"files": {}}, ("short",))
    content = json.loads(report.to_json())
    assert content["figures"] == [{"name": "mean", "value": 0.5, "unit": "ratio", "reach": 0.97, "ok": False}]
    assert content["ok"] is False
    assert content["failures"] == ["short"]
