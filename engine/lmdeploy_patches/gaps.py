"""Where a vendor's backend has no kernel for an operator, our reference takes its place, instead of an error later."""

from __future__ import annotations

import functools
from typing import Any

from engine.adapters.dispatcher import Table, find_vendor
from engine.adapters.vendors.packages import BUILD_SPECS
from engine.lmdeploy_patches.hooks import function, replace

BACKENDS = {
    "cuda": "lmdeploy.pytorch.backends.cuda.op_backend:CudaOpsBackend.build_op",
    "ascend": "lmdeploy.pytorch.backends.dlinfer.ascend.op_backend:AscendOpsBackend.build_op",
    "camb": "lmdeploy.pytorch.backends.dlinfer.camb.op_backend:CambOpsBackend.build_op",
    "maca": "lmdeploy.pytorch.backends.dlinfer.maca.op_backend:MacaOpsBackend.build_op",
}


def fill_gaps(table: Table) -> None:
    """Build what the table gives to the reference from our functions, and the rest as LMDeploy does.

    An operator of LMDeploy may be several of the catalogue: if one of them is missing, all of them are the
    reference's.

    Raises:
        LMDeployChanged: the vendor's backend does not build operators the way it did.
    """
    missing = gaps(table)
    if not missing:
        return
    hook = BACKENDS[table.vendor]
    original = function(hook, ["spec", "enable_deterministic"])
    order = find_vendor(table.vendor).kv_order
    references = table.all_references()

    @functools.wraps(original)
    def build_op(cls: Any, spec: Any, *, enable_deterministic: bool = False) -> Any:
        if type(spec).__name__ in missing:
            from engine.adapters import lmdeploy_ops

            built = lmdeploy_ops.build(spec, references, order)
            if built is not None:
                return built
        return original(spec, enable_deterministic=enable_deterministic)

    replace(hook, classmethod(build_op))


def gaps(table: Table) -> frozenset[str]:
    """Names of LMDeploy's build specs for which the vendor lacks something."""
    return frozenset(BUILD_SPECS[name] for name, choice in table.choices.items() if choice.source == "reference")
