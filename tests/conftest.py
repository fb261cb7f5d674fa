"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.processes import PageProcesses
from pipeline.settings import settings


@pytest.fixture(scope="session")
def processes() -> Iterator[PageProcesses]:
    """Two page processes for all tests that do not need their own: starting one takes a second."""
    with PageProcesses(2) as pool:
        yield pool


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings are read once; forget them before and after a test that changes the environment."""
    settings.cache_clear()
    yield monkeypatch.setenv  # type: ignore[misc]
    settings.cache_clear()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real documents; tests that need it say so when it is absent."""
    folder = Path(os.environ.get("PAGEMILL_CORPUS", Path(__file__).parents[1] / "../shared/corpus"))
    if not folder.is_dir():
        pytest.skip(f"no corpus at {folder}: set PAGEMILL_CORPUS to a folder of real documents")
    return folder.resolve()


def page_process_pids(of: int | None = None) -> list[int]:
    """The page processes that descend from a process (this one by default)."""
    found = []
    for process in psutil.Process(of).children(recursive=True):
        try:
            if "pipeline.processes.child" in process.cmdline():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
