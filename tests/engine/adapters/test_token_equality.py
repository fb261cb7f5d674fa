"""Greedy tokens of the engine on the CPU are those of transformers' `generate`, whatever the scheduler does."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("lmdeploy") is None:
    pytest.skip("lmdeploy is not installed (make engine)", allow_module_level=True)
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[3]
# The longest prompt takes 20 blocks of 16 tokens with its answer, so eight at once do not fit into 40.
CROWDED = {"num_gpu_blocks": 40}
CONFIGS: dict[str, dict[str, Any]] = {
    "roomy": {},
    "chunked prefill": {"max_prefill_token_num": 64},
    "prefix caching": {"enable_prefix_caching": True},
    "KV pressure": CROWDED,
    "all of it": {"max_prefill_token_num": 64, "enable_prefix_caching": True, **CROWDED},
}


def run(checkpoint: Path, mode: str, config: dict[str, Any], graphs: Path | None = None, **more: Any) -> dict[str, Any]:
    """One engine in its own process; what it says about its answers."""
    references = checkpoint.parent / f"{checkpoint.name}.json"
    wanted = {"checkpoint": str(checkpoint), "mode": mode, "config": config, "references": str(references), **more}
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PAGEMILL_ENGINE_GRAPH_CACHE": str(graphs or checkpoint.parent / "graphs"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine_equality", json.dumps(wanted)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def assert_equal(answer: dict[str, Any], *, prefixes_stay: bool) -> None:
    assert set(answer["rounds"].values()) == {answer["requests"]}, answer
    if not prefixes_stay:
        assert answer["free_after"] == answer["free_before"], "blocks are still held after every request has ended"


@pytest.mark.parametrize("name", CONFIGS)
def test_text(checkpoints: dict[str, Path], name: str) -> None:
    answer = run(checkpoints["qwen2"], "eager", CONFIGS[name])
    assert_equal(answer, prefixes_stay="enable_prefix_caching" in CONFIGS[name])


@pytest.mark.parametrize("name", ["roomy", "all of it"])
def test_none_one_and_two_pictures(checkpoints: dict[str, Path], name: str) -> None:
    answer = run(checkpoints["qwen2-vl"], "eager", CONFIGS[name])
    assert_equal(answer, prefixes_stay="enable_prefix_caching" in CONFIGS[name])


def test_references_alone_give_the_same_tokens(checkpoints: dict[str, Path]) -> None:
    """So the engine really computes with what the dispatcher's table says."""
    assert_equal(run(checkpoints["qwen2"], "eager", {}, all_references=True), prefixes_stay=False)


needs_a_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="graph mode takes a C++ compiler"
)


@needs_a_compiler
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["qwen2", "qwen2-vl"])
def test_decode_steps_as_a_graph(checkpoints: dict[str, Path], graph_cache: Path, kind: str) -> None:
    """Compiled in the first process and loaded from disk by the second; every decode step runs in the graph."""
    packed = {"pack_all": kind == "qwen2"}
    known = set(graph_cache.glob("*.pt2"))
    first = run(checkpoints[kind], "graph", CONFIGS["roomy"], graph_cache, **packed)
    made = set(graph_cache.glob("*.pt2")) - known
    # Unless another test has compiled the same.
    assert first["graph"].startswith("running compiled now" if made else "running loaded from"), first
    second = run(checkpoints[kind], "graph", {**CONFIGS["all of it"], "num_gpu_blocks": 512}, graph_cache, **packed)
    assert second["graph"].startswith("running loaded from"), second
    for answer, stay in ((first, False), (second, True)):
        assert_equal(answer, prefixes_stay=stay)
        assert answer["graph_steps"] > 0 and answer["eager_decode_steps"] == 0
