"""NVIDIA: LMDeploy's own kernels and CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping

from engine.adapters.catalogue import Mode
from engine.adapters.vendor import Availability, Capability
from engine.adapters.vendors.packages import BUILD_SPECS, missing, specs_built_by, version
from engine.interconnect.layout import Order


class Cuda:
    """What LMDeploy's backend `cuda` builds itself; for the rest it takes plain torch, as our reference does."""

    name = "cuda"
    kv_order = Order.TOKENS_FIRST

    def availability(self) -> Availability:
        absent = missing("torch", "lmdeploy", "triton")
        if absent:
            return Availability(False, f"{absent} is not installed")
        import torch

        if torch.version.cuda is None:
            return Availability(False, f"this torch ({version('torch')}) is built without CUDA")
        if not torch.cuda.is_available():
            return Availability(False, "torch finds no CUDA device")
        return Availability(True, f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}")

    def graph_mode(self) -> Availability:
        return Availability(True, "decode steps captured as CUDA graphs by LMDeploy")

    def capabilities(self, mode: Mode) -> Mapping[str, Capability]:
        own = specs_built_by("pytorch/backends/cuda/op_backend.py")
        default = specs_built_by("pytorch/backends/default/op_backend.py")
        captured = ", captured in the graph" if mode is Mode.GRAPH else ""
        found = {}
        for operator, spec in BUILD_SPECS.items():
            if spec in own:
                found[operator] = Capability(f"LMDeploy's CUDA kernel{captured}")
            elif spec in default:
                found[operator] = Capability(f"torch's own CUDA kernels, as LMDeploy calls them{captured}")
        return found
