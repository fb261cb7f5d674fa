"""`scripts/gpu-check.py`, as far as it can be held without a GPU: it says that there is none, and it judges tokens."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.adapters.vendors import VENDORS

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "gpu-check.py"


@pytest.mark.skipif(VENDORS["cuda"].availability().ok, reason="there is a GPU")
def test_without_a_gpu_it_says_why_and_has_a_status_of_its_own() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 69, done.stderr
    answer = json.loads(done.stdout)
    assert answer == {"vendor": "cuda", "available": False, "reason": VENDORS["cuda"].availability().reason}


def test_a_token_counts_by_its_distance_from_the_best(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    from bench.engine_equality import references, with_images

    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    checkpoint = checkpoints["qwen2-vl"]
    right = references(checkpoint, with_images(checkpoint), tmp_path / "answers.json")
    other = [[*answer[:5], (answer[5] + 1) % 256, *answer[6:]] for answer in right]
    assert all(each < 1e-5 for each in script.distances(checkpoint, list(enumerate(right))))
    assert all(each > script.NEAR for each in script.distances(checkpoint, list(enumerate(other))))
