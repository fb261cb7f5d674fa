from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.main import app

SHORT = ["--instances", "4", "--seeds", "1", "--policy", "even"]


def test_json_is_one_object_with_goodput_latencies_and_flips() -> None:
    result = CliRunner().invoke(app, ["balance", "simulate", "--mix", "prose/10,tables/10", *SHORT, "--json"])
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert set(content["policies"]) == {"ours", "even"}
    for key in ("goodput_jobs_s", "ttft_p90_s", "tpot_p99_s", "flips"):
        assert "mean" in content["policies"]["ours"][key]


def test_a_trace_is_simulated(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival,input_tokens,output_tokens\n" + "".join(f"{n / 10},500,50\n" for n in range(100)))
    result = CliRunner().invoke(app, ["balance", "simulate", "--trace", str(trace), *SHORT, "--oracle", "1"])
    assert result.exit_code == 0, result.output
    assert "regret" in result.stdout


@pytest.mark.parametrize(
    "arguments", [["--mix", "poetry/60"], ["--trace", "missing.csv"], [], ["--mix", "prose/5", "--trace", "x.csv"]]
)
def test_bad_input_is_a_usage_error_with_a_sentence(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["balance", "simulate", *arguments])
    assert result.exit_code == 2
    assert "Error" in result.output or "Usage" in result.output


def test_plot_writes_a_picture_and_a_page_that_needs_no_other_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--mix", "prose/10,tables/10", *SHORT, "--plot", str(tmp_path / "shift"), "--json"]
    result = CliRunner().invoke(app, ["balance", "simulate", *arguments])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "shift.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "shift.html").read_text("utf-8")
    assert "data:image/png" in page
    assert 'src="http' not in page
