"""What more than one file here needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.random_checkpoint import write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen2-VL."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny-vl"
    write_checkpoint(folder, "qwen2-vl")
    return folder
