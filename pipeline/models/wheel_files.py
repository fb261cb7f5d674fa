"""Finds a model file inside an installed wheel without importing the wheel's code."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import RouteUnavailable


def wheel_file(package: str, relative: str, install: str) -> Path:
    """The path of `relative` inside the installed top-level `package`.

    Args:
        package: import name of the wheel; it is located, never imported.
        relative: path inside the package, with forward slashes.
        install: the command that brings the wheel, for the error message.

    Raises:
        RouteUnavailable: the package is not installed, or its wheel does not carry the file.
    """
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / relative
        if path.is_file():
            return path
    problem = "is not installed" if spec is None else f"does not carry {relative}"
    raise RouteUnavailable(f"The package {package} {problem}; run: {install}")
