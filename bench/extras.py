"""The benches' own dependencies are an extra. Ask for them before minutes are spent on parsing."""

from __future__ import annotations

from importlib.util import find_spec

CURE = "pip install --no-deps -r requirements/bench.txt, then pip install '.[bench]'"


def require(*modules: str) -> None:
    """Check that top-level `modules` are installed, without importing them.

    Raises:
        ModuleNotFoundError: with the missing names and the commands that install them.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ModuleNotFoundError(f"this bench needs {', '.join(missing)}: {CURE}")
