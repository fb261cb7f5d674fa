"""`pagemill bench startup`: how soon the command answers, and what it does not import for that."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.figures import Report, at_most

SECONDS_REACH = 0.4
HEAVY = frozenset({"torch", "mineru", "docvortex", "onnxruntime", "cv2", "rapidocr", "transformers", "numpy"})
FORBIDDEN = frozenset({"torch", "mineru"})


def measure(runs: int = 7) -> Report:
    """Time `pagemill --help` `runs` times and look at what it imports."""
    command = [str(Path(sys.executable).with_name("pagemill")), "--help"]
    if not Path(command[0]).exists():
        raise FileNotFoundError(f"{command[0]} is not installed")
    timed = [_seconds(command) for _ in range(runs)]
    imported = imported_modules()
    seconds = median(timed)
    failures = []
    if seconds > SECONDS_REACH:
        failures.append(f"pagemill --help takes {seconds:.2f} s")
    failures += [f"pagemill --help imports {name}" for name in sorted(imported & FORBIDDEN)]
    return Report(
        "startup",
        (
            at_most("help_seconds", seconds, "seconds", SECONDS_REACH),
            at_most("forbidden_imports", len(imported & FORBIDDEN), "modules", 0),
        ),
        {
            "seconds": [round(one, 3) for one in timed],
            "heavy_imports": sorted(imported & HEAVY),
            "modules": len(imported),
        },
        tuple(failures),
    )


def imported_modules() -> set[str]:
    """Names of all top-level modules that `pagemill --help` imports."""
    command = [sys.executable, "-X", "importtime", "-m", "api.cli.main", "--help"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    names = re.findall(r"^import time:\s*\d+ \|\s*\d+ \|\s*(\S+)$", finished.stderr, re.MULTILINE)
    return {name.partition(".")[0] for name in names}


def _seconds(command: list[str]) -> float:
    # Not `process_tree.run`: looking at memory all the while would take the time that is to be measured.
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started
