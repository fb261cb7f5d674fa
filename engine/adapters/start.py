"""The two calls with which an engine process uses an adapter: before the engine is built, and after."""

from __future__ import annotations

from typing import Any

from engine.adapters.catalogue import Mode
from engine.adapters.dispatcher import Table, resolve
from engine.lmdeploy_patches import install


def prepare(vendor: str, mode: str | Mode = Mode.EAGER, *, kv_bytes: int = 2 << 30) -> Table:
    """Choose the operators and make LMDeploy use them. Once, before `lmdeploy.pytorch.engine.Engine` is built with
    `PytorchEngineConfig(device_type=vendor, eager_mode=table.mode is Mode.EAGER)`.

    Args:
        kv_bytes: what LMDeploy may take for the KV cache where the number of blocks is not given; cpu only.

    Raises:
        UnknownVendor, VendorUnavailable: as from `resolve`.
        LMDeployChanged: the installed LMDeploy has moved a hook.
    """
    table = resolve(vendor, mode)
    install(vendor, kv_bytes=kv_bytes)
    if vendor == "cpu":
        from engine.adapters.cpu.backend import CpuOpsBackend

        CpuOpsBackend.use(table)
    else:
        from engine.lmdeploy_patches.gaps import fill_gaps

        fill_gaps(table)
    return table


def describe(engine: Any, table: Table) -> dict[str, str]:
    """The table's choices, and what became of the graph: for `InstanceStatus.operators`.

    Args:
        engine: LMDeploy's, built.
        table: what `prepare` answered.
    """
    runner = engine.executor.model_agent.patched_model
    report = getattr(runner, "report", None)
    return table.describe() | ({"graph": report} if report is not None else {})
