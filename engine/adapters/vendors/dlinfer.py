"""Ascend, Cambricon and MetaX: LMDeploy through dlinfer, whose package is built for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.adapters.catalogue import Mode
from engine.adapters.vendor import Availability, Capability
from engine.adapters.vendors.packages import BUILD_SPECS, missing, specs_built_by, version
from engine.interconnect.layout import Order

# What LMDeploy calls of dlinfer for each operator; dlinfer says what its vendor has by these names.
DLINFER_OPERATORS: dict[str, tuple[str, ...]] = {
    "rms_norm": ("rms_norm",),
    "add_rms_norm": ("add_rms_norm",),
    "rotary": ("apply_rotary_pos_emb",),
    "fill_kv_cache": ("fill_kv_cache",),
    "prefill_attention": ("prefill_attention", "paged_prefill_attention"),
    "paged_decode_attention": ("paged_decode_attention",),
    "vision_attention": ("prefill_attention",),
    "silu_and_mul": ("silu_and_mul",),
    "linear": ("linear",),
}


class _Dlinfer:
    """One vendor of dlinfer.

    Attributes:
        device_package: torch's extension for the device.
    """

    name: str
    kv_order: Order
    device_package: str

    def availability(self) -> Availability:
        absent = missing("torch", "lmdeploy", "dlinfer", self.device_package)
        if absent:
            return Availability(False, f"{absent} is not installed")
        try:
            built_for, _ = _what_dlinfer_has()
        except Exception as error:  # noqa: BLE001 - a vendor's package fails in ways of its own where its driver is not
            return Availability(False, f"dlinfer cannot be imported: {type(error).__name__}: {error}")
        if built_for != self.name:
            return Availability(False, f"this dlinfer is built for {built_for}")
        return Availability(True, f"dlinfer {version('dlinfer')} with {self.device_package}; untested by us")

    def graph_mode(self) -> Availability:
        if self.name == "ascend":
            return Availability(True, "decode steps captured and replayed by dlinfer")
        return Availability(False, f"LMDeploy runs {self.name} eagerly")

    def capabilities(self, mode: Mode) -> Mapping[str, Capability]:
        try:
            _, has = _what_dlinfer_has()
        except Exception:  # noqa: BLE001 - see above; availability says why
            return {}
        default = specs_built_by("pytorch/backends/default/op_backend.py")
        own = specs_built_by("pytorch/backends/dlinfer/op_backend.py")
        found = {}
        for operator, spec in BUILD_SPECS.items():
            if spec in own and has.issuperset(DLINFER_OPERATORS.get(operator, ("",))):
                found[operator] = Capability(f"dlinfer's {self.name} kernel")
            elif spec not in own and spec in default:
                found[operator] = Capability(f"{self.device_package}'s own kernels, as LMDeploy calls them")
        return found


def _what_dlinfer_has() -> tuple[str, frozenset[str]]:
    """(vendor that it is built for, names of its operators)."""
    import importlib

    vendor: Any = importlib.import_module("dlinfer.vendor")
    if hasattr(vendor, "vendor_torch_init"):
        vendor.vendor_torch_init()
    return str(vendor.vendor_name), frozenset(vendor.vendor_ops_registry)


class Ascend(_Dlinfer):
    """Huawei Ascend."""

    name = "ascend"
    kv_order = Order.TOKENS_FIRST
    device_package = "torch_npu"


class Camb(_Dlinfer):
    """Cambricon MLU. Its blocks hold heads first, 16 tokens each."""

    name = "camb"
    kv_order = Order.HEADS_FIRST
    device_package = "torch_mlu"


class Maca(_Dlinfer):
    """MetaX MACA, whose torch calls its device "cuda"."""

    name = "maca"
    kv_order = Order.TOKENS_FIRST
    device_package = "torch"
