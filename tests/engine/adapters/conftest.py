"""Small random checkpoints, written once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """{"qwen2": folder, "qwen2-vl": folder}"""
    pytest.importorskip("lmdeploy")
    from engine.random_checkpoint import write_checkpoint

    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(folder / "qwen2", "qwen2")
    write_checkpoint(folder / "qwen2-vl", "qwen2-vl")
    return {name: folder / name for name in ("qwen2", "qwen2-vl")}
