"""What tests of the engine share over folders."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def graph_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled decode steps: a minute each, so the tests that need the same one share it."""
    return tmp_path_factory.mktemp("graphs")
