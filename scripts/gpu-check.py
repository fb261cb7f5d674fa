"""Does the adapter of a device compute what it should? For a machine that has the device; needs no network.

    python scripts/gpu-check.py                              NVIDIA
    python scripts/gpu-check.py --vendor cpu --size tiny     the same, without a GPU

Writes a random Qwen2-VL checkpoint, runs the adapters' conformance suite, and compares the engine's greedy tokens with
transformers' on the CPU: no, one and two images, one by one and all at once, eager and as graphs. Prints JSON.

On a device the model runs in half precision, where rounding decides between two tokens that are about as likely. A
token that differs counts as right if transformers, after the same tokens, finds it within `NEAR` of the best.

Exit status: 0 if all is right, 1 if not, 69 if there is no such device here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WRONG, UNAVAILABLE = 1, 69
PATIENCE_SECONDS = 1800
NEAR = 0.02
"""Of the largest logit."""


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description="Check the adapter of a device: operators and tokens.")
    parser.add_argument("--vendor", default="cuda", help="cuda, or another vendor of `pagemill doctor`.")
    parser.add_argument("--size", default="small", choices=("tiny", "small"), help="Of the random checkpoint.")
    given = parser.parse_args()

    from engine.adapters.vendors import VENDORS

    vendor = VENDORS.get(given.vendor)
    if vendor is None:
        parser.error(f"unknown vendor {given.vendor}; there are {', '.join(VENDORS)}")
    state = vendor.availability()
    if not state.ok:
        return _say({"vendor": given.vendor, "available": False, "reason": state.reason}, UNAVAILABLE)
    with tempfile.TemporaryDirectory(prefix="pagemill-gpu-check-") as folder:
        checkpoint = _checkpoint(Path(folder), given.vendor, given.size)
        found: dict[str, Any] = {
            "vendor": given.vendor,
            "available": True,
            "device": state.reason,
            "conformance": _conformance(given.vendor, Path(folder)),
            "tokens": {mode: _tokens(given.vendor, mode, checkpoint) for mode in ("eager", "graph")},
        }
    right = found["conformance"]["ok"] and all(mode["ok"] for mode in found["tokens"].values())
    return _say(found | {"ok": right}, 0 if right else WRONG)


def _say(content: dict[str, Any], status: int) -> int:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
    return status


def _checkpoint(folder: Path, vendor: str, size: Any) -> Path:
    """In the precision in which the device computes, so that both sides begin with the same weights."""
    import torch
    from transformers import Qwen2VLForConditionalGeneration

    from engine.random_checkpoint import write_checkpoint

    path = folder / f"{size}-qwen2-vl"
    write_checkpoint(path, "qwen2-vl", size)
    if vendor != "cpu":
        Qwen2VLForConditionalGeneration.from_pretrained(path, dtype=torch.float16).save_pretrained(path)
    return path


def _conformance(vendor: str, folder: Path) -> dict[str, Any]:
    """Counts of the suite's cases for this vendor. Operators inside LMDeploy's backend are skipped there."""
    report = folder / "conformance.xml"
    suite = "tests/engine/adapters/test_conformance.py"
    command = [sys.executable, "-m", "pytest", "-q", suite, "-k", f"{vendor}- or cases", f"--junitxml={report}"]
    done = _run(command)
    if not report.exists():
        return {"ok": False, "error": done.stdout[-2000:] + done.stderr[-2000:]}
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    counts = {name: 0 for name in ("tests", "failures", "errors", "skipped")}
    for each in suites:
        counts = {name: count + int(each.get(name, 0)) for name, count in counts.items()}
    return {"ok": done.returncode == 0, **counts}


def _tokens(vendor: str, mode: str, checkpoint: Path) -> dict[str, Any]:
    """The engine's answers in one mode, held against transformers."""
    wanted = {
        "vendor": vendor,
        "checkpoint": str(checkpoint),
        "mode": mode,
        "config": {"block_size": 64, "num_gpu_blocks": 256, "enable_prefix_caching": True},
        "references": str(checkpoint.with_suffix(".json")),
        "copies": 4,
    }
    done = _run([sys.executable, "-m", "bench.engine_equality", json.dumps(wanted)], graphs=checkpoint.parent)
    if done.returncode:
        return {"ok": False, "error": done.stderr[-3000:]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    different = [(at % (answer["requests"] // 4), tokens) for at, tokens in answer.pop("different")]
    off = distances(checkpoint, different) if different else []
    return {"ok": all(each <= NEAR for each in off), "different": len(different), "furthest": max(off, default=0.0)} | {
        name: answer[name] for name in ("requests", "rounds", "graph", "graph_steps")
    }


def distances(checkpoint: Path, answers: list[tuple[int, list[int]]]) -> list[float]:
    """How far, at most, each answer's tokens are from the best after the tokens before them, as a share of it."""
    import torch
    from transformers import Qwen2VLForConditionalGeneration

    from bench.engine_equality import with_images

    requests = with_images(checkpoint)
    model = Qwen2VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    found = []
    for number, tokens in answers:
        ids, images = requests[number]["ids"], requests[number]["images"]
        names = ("pixel_values", "image_grid_thw") if images else ()
        pictures = {name: torch.cat([image[name] for image in images]) for name in names}
        whole = torch.tensor([ids + tokens])
        with torch.no_grad():
            logits = model(input_ids=whole, attention_mask=torch.ones_like(whole), **pictures).logits[0]
        steps = logits[len(ids) - 1 : -1]
        chosen = steps.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        found.append(float(((steps.amax(1) - chosen) / steps.abs().amax(1)).max()))
    return found


def _run(command: list[str], graphs: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if graphs:
        environment["PAGEMILL_ENGINE_GRAPH_CACHE"] = str(graphs / "graphs")
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
