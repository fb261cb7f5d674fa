"""What the README promises is what the code has: nothing forgotten, nothing invented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from pipeline import Route, errors
from pipeline.settings import PipelineSettings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def section(heading: str) -> str:
    """The text below `heading`, down to the next heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def first_cells(heading: str) -> set[str]:
    return set(re.findall(r"^\| `?([a-z0-9_]+)`? \|", section(heading), re.MULTILINE)) - {"code", "route"}


def test_mineru_is_named_near_the_top() -> None:
    opening = README.split("## ", 2)[0]
    assert "https://github.com/opendatalab/MinerU" in opening


def test_every_error_code_has_its_row_and_no_other_code_has_one() -> None:
    known = {value.code for value in vars(errors).values() if isinstance(value, type) and hasattr(value, "code")}
    assert first_cells("Error codes") == known


def test_every_exit_code_has_its_row() -> None:
    assert first_cells("Exit codes") == {str(int(code)) for code in ExitCode}


def test_every_route_has_its_row() -> None:
    assert first_cells("Routes") == {str(route) for route in Route if route is not Route.AUTO}


def test_every_setting_is_named() -> None:
    named = set(re.findall(r"PAGEMILL_[A-Z_]+", section("Settings")))
    assert named == {f"PAGEMILL_{name.upper()}" for name in PipelineSettings.model_fields}


def test_every_option_of_parse_is_shown_and_every_option_shown_exists() -> None:
    parse = get_command(app).commands["parse"]  # type: ignore[attr-defined]
    options = {name for parameter in parse.params for name in parameter.opts if name.startswith("--")}
    shown = set(re.findall(r"^    (--[a-z]+)", section("Use it"), re.MULTILINE))
    assert shown == options - {"--output", "--help"}


@pytest.mark.parametrize(
    "document",
    ["README.md", "CONTRIBUTING.md", "docs/pipeline.md", "docs/balancer.md", "CHANGELOG.md"],
)
def test_links_and_named_files_exist(document: str) -> None:
    path = ROOT / document
    text = path.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (path.parent / target).exists(), target
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py|\.txt)?)`", text):
        bases = (ROOT, *(ROOT / floor for floor in ("api", "workers", "pipeline", "engine")))
        generated = name.startswith(("out/", "images/"))
        placeholder = name == "tests/pipeline/routes/"
        assert generated or placeholder or any((base / name).exists() for base in bases), name
