"""The contract of every bench: one JSON object, exit 0 only if everything is reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import quality, startup, text
from bench.cli import app
from bench.figures import Report, at_least

REACHED = Report("text", (at_least("mean_similarity", 0.98, "ratio", 0.97),))
SHORT = Report("text", (at_least("mean_similarity", 0.90, "ratio", 0.97),), failures=("a.pdf: [similarity] 0.9",))


@pytest.fixture(params=[REACHED, SHORT], ids=["reached", "short"])
def report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Report:
    """A report that every bench answers, so that only the command line is under test."""
    for module in (text, quality, startup):
        monkeypatch.setattr(module, "measure", lambda *args, **kwargs: request.param)
    given: Report = request.param
    return given


def test_json_prints_one_object_and_the_exit_code_tells_the_verdict(report: Report) -> None:
    result = CliRunner().invoke(app, ["text", "--dir", ".", "--json"])
    assert json.loads(result.stdout)["figures"][0]["ok"] is report.ok
    assert result.exit_code == (0 if report.ok else 1)


def test_json_with_a_path_also_writes_the_file(report: Report, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = CliRunner().invoke(app, ["quality", "--json", str(out), "--checks", "c", "--pdfs", "p"])
    assert json.loads(out.read_text("utf-8")) == json.loads(result.stdout)


def test_json_before_another_option_stands_alone(report: Report) -> None:
    result = CliRunner().invoke(app, ["quality", "--json", "--checks", "c", "--pdfs", "p"])
    assert json.loads(result.stdout)["bench"] == "text"


def test_without_json_people_see_the_figure_and_what_fell_short(report: Report) -> None:
    result = CliRunner().invoke(app, ["startup"])
    assert "mean_similarity" in result.stdout
    for failure in report.failures:
        assert failure in result.stdout
    assert result.exit_code == (0 if report.ok else 1)


def test_a_missing_corpus_is_a_usage_error_with_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["scans", "--dir", str(tmp_path)])
    assert result.exit_code == 2
    assert str(tmp_path) in result.output
