"""What every vendor's adapter can do on this machine, as JSON: `python -m engine.adapters.report`.

A process of its own, because some vendors can only be asked by importing their libraries.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pydantic import BaseModel

PATIENCE_SECONDS = 120.0


class VendorReport(BaseModel):
    """One vendor.

    Attributes:
        kv_order: what varies slowest inside a block of its KV cache.
        modes: {"eager": {operator: "vendor: ..." or "reference: ..."}, "graph": ...}; "mode" says what would run.
            Empty where the vendor is unavailable.
    """

    vendor: str
    available: bool
    reason: str
    kv_order: str
    modes: dict[str, dict[str, str]] = {}


def ask() -> list[VendorReport]:
    """Every vendor, asked in a child process.

    Raises:
        RuntimeError: the child failed or took too long; the message says what it printed last.
    """
    command = [sys.executable, "-m", "engine.adapters.report"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"asking the engine's adapters took more than {PATIENCE_SECONDS:.0f} seconds") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise RuntimeError(f"the engine's adapters could not be asked: {last[0]}")
    return [VendorReport.model_validate(each) for each in json.loads(done.stdout.splitlines()[-1])]


def inspect() -> list[VendorReport]:
    """Every vendor, asked in this process."""
    from engine.adapters.catalogue import Mode
    from engine.adapters.dispatcher import choose
    from engine.adapters.vendors import VENDORS

    reports = []
    for name, vendor in VENDORS.items():
        state = vendor.availability()
        modes: dict[str, Any] = {mode: _plain(choose(vendor, mode).describe()) for mode in Mode} if state.ok else {}
        reports.append(
            VendorReport(vendor=name, available=state.ok, reason=state.reason, kv_order=vendor.kv_order, modes=modes)
        )
    return reports


def _plain(described: dict[str, str]) -> dict[str, str]:
    """Without the mode before each name: it is the key above."""
    return {name.rpartition(".")[2]: choice for name, choice in described.items()}


if __name__ == "__main__":
    print(json.dumps([report.model_dump() for report in inspect()]))  # noqa: T201 - its answer
