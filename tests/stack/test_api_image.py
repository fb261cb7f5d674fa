"""The API image has no parsers: everything that the API process does must do without them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement

from tests.documents import text_pdf

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys

missing = set(sys.argv[1].split(","))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r} in the API image", name=name)

sys.meta_path.insert(0, Absent())

import api.cli.main
import api.cli.serve
import api.service.app
import workers.celery_app
from api.service.rendering import RenderRequest, render_page

request = RenderRequest(
    path=sys.argv[2], scratch=sys.argv[3], password=None, page=1, width=400, rotation=0, image_format="jpeg",
    max_pixels=10**7,
)
(picture,) = render_page(request)
assert picture[:2] == b"\\xff\\xd8"
print(api.service.app.create_app.__name__)
"""


def api_requirements() -> list[str]:
    path = ROOT / "scripts" / "api-requirements.py"
    spec = importlib.util.spec_from_file_location("api_requirements", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[str] = module.api_requirements(ROOT / "pyproject.toml")
    return found


def test_the_api_needs_nothing_that_its_image_lacks(tmp_path: Path) -> None:
    there = closure(api_requirements())
    missing = {
        module
        for module, owners in packages_distributions().items()
        if not {canonical(owner) for owner in owners} & (there | {"pagemill", "setuptools", "pip"})
    }
    assert {"mineru", "onnxruntime", "cv2"} <= missing
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(sorted(missing)), str(text_pdf(tmp_path / "a.pdf")), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_api_image_installs_what_the_distribution_asks_for_except_parsers() -> None:
    names = {canonical(Requirement(line).name) for line in api_requirements()}
    assert {"fastapi", "celery", "sqlalchemy", "pypdfium2"} <= names
    assert not names & {"mineru", "docvortex", "rapidocr", "onnxruntime"}


def closure(requirements: list[str]) -> set[str]:
    """Canonical names of everything that pip installs for these requirements here."""
    found: set[str] = set()
    waiting = [(Requirement(line), "") for line in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonical(requirement.name)
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        fresh = name not in found
        found.add(name)
        if fresh or requirement.extras:
            waiting += [(Requirement(line), extra) for line in needs for extra in ("", *requirement.extras)]
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
