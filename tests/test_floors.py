"""Imports go down only: api over workers over pipeline over engine. Heavy libraries stay in page processes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ["api", "workers", "pipeline", "engine"]
FORBIDDEN_LIBRARIES = {
    "engine": {"celery", "fastapi", "mineru", "docvortex"},
    "pipeline": {"celery", "fastapi", "typer", "rich"},
    "workers": {"fastapi", "typer"},
}


def imports_of(package: str) -> Iterator[tuple[str, str]]:
    """(file, top-level module) for every import in a package, wherever in a file it stands."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: write imports from the root, not relative ones"
                names = [node.module or ""]
            for name in names:
                yield str(path.relative_to(ROOT)), name.split(".")[0]


@pytest.mark.parametrize("floor", FLOORS)
def test_no_floor_imports_from_above(floor: str) -> None:
    above = set(FLOORS[: FLOORS.index(floor)]) | ({"bench", "samples", "tests"} if floor != "api" else {"tests"})
    found = [(path, name) for path, name in imports_of(floor) if name in above]
    assert found == []


@pytest.mark.parametrize("floor", sorted(FORBIDDEN_LIBRARIES))
def test_no_floor_knows_the_libraries_of_another(floor: str) -> None:
    found = [(path, name) for path, name in imports_of(floor) if name in FORBIDDEN_LIBRARIES[floor]]
    assert found == []


@pytest.mark.parametrize("package", [*FLOORS, "bench", "samples"])
def test_every_package_says_what_lives_there(package: str) -> None:
    for init in sorted((ROOT / package).rglob("__init__.py")):
        assert ast.get_docstring(ast.parse(init.read_text("utf-8"))), f"{init.relative_to(ROOT)} has no docstring"


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after a statement."""
    program = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"torch", "mineru", "docvortex", "onnxruntime", "cv2", "numpy", "rapidocr", "lmdeploy"}


@pytest.mark.parametrize("statement", ["import api.cli.main", "import pipeline"])
def test_the_parent_process_loads_no_heavy_library(statement: str) -> None:
    assert modules_after(statement) & HEAVY == set()


def test_help_answers_without_opening_the_pipeline() -> None:
    assert "pipeline" not in modules_after("import api.cli.main")
