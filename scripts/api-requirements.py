"""Print what the API image needs: pyproject.toml's requirements without the libraries that parse, as pip reads them.

The API draws pictures of pages (pypdfium2, Pillow) and never parses; the parsers and their models would make its
image forty times as large. usage: python scripts/api-requirements.py [pyproject.toml] > requirements.txt
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PARSERS = {"mineru", "mineru-vl-utils", "docvortex", "rapidocr", "onnxruntime", "numpy"}
EXTRAS = ("service", "s3")


def api_requirements(pyproject: Path) -> list[str]:
    """Requirements as pyproject.toml states them, those of the parsers left out."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    stated = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    return [line for line in stated if re.match(r"[\w.-]+", line)[0].lower() not in PARSERS]


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pyproject.toml"
    print(*api_requirements(path), sep="\n")  # noqa: T201
