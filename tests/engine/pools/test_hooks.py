"""The installed LMDeploy still has every hook that the pools need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lmdeploy")

PROGRAM = """
from engine.lmdeploy_patches import install
from engine.lmdeploy_patches.history import install_history
from engine.lmdeploy_patches.in_flight import install_in_flight
from engine.lmdeploy_patches.kv_arena import install_kv_arena
from engine.lmdeploy_patches.migration import install_migration
from engine.lmdeploy_patches.turns import install_turns
install("cpu")
for one in (install_history, install_in_flight, install_kv_arena, install_migration):
    one()
install_turns(3, 4)
print("all hooks are there")
"""


def test_all_hooks_are_where_they_were() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("all hooks are there"), done.stderr[-2000:]
