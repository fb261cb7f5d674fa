"""The CPU: every operator of the catalogue, in both modes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from engine.adapters.catalogue import Mode
from engine.adapters.vendor import Availability, Capability
from engine.adapters.vendors.packages import missing, version
from engine.interconnect.layout import Order

_FUSED = "engine.adapters.cpu.fused"
_ATTENTION = "engine.adapters.cpu.attention"
_SDPA = "torch's fused attention"

_EAGER: dict[str, Capability] = {
    "rms_norm": Capability("torch's rms_norm", f"{_FUSED}:rms_norm"),
    "add_rms_norm": Capability("a sum and torch's rms_norm", f"{_FUSED}:add_rms_norm"),
    "layer_norm": Capability("torch's layer_norm", f"{_FUSED}:layer_norm"),
    "rotary": Capability("in place, four calls for each tensor", f"{_FUSED}:rotary"),
    "fill_kv_cache": Capability("one scatter for the whole step", f"{_ATTENTION}:fill_kv_cache"),
    "prefill_attention": Capability(f"tiles of queries through {_SDPA}", f"{_ATTENTION}:prefill_attention"),
    "paged_decode_attention": Capability(
        f"blocks gathered for the whole batch, then {_SDPA}", f"{_ATTENTION}:paged_decode_attention"
    ),
    "vision_attention": Capability(f"pictures of one size together through {_SDPA}", f"{_ATTENTION}:vision_attention"),
    "silu_and_mul": Capability("in place", f"{_FUSED}:silu_and_mul"),
    "gelu_and_mul": Capability("in place", f"{_FUSED}:gelu_and_mul"),
    "linear": Capability("oneDNN, weights reordered once when they are loaded", "engine.adapters.cpu.linear:linear"),
    "embedding": Capability("torch's embedding", "engine.adapters.reference.linear:embedding"),
    "multinomial_sampling": Capability(
        "counter-based, reproducible", "engine.adapters.reference.sampling:multinomial_sampling"
    ),
}
# What is part of a decode step, and so of its graph. The rest runs in prefill or after the step.
_IN_THE_GRAPH = frozenset(_EAGER) - {"embedding", "prefill_attention", "vision_attention", "multinomial_sampling"}


class Cpu:
    """Ours, complete; needs torch and LMDeploy, and a C++ compiler for graphs."""

    name = "cpu"
    kv_order = Order.TOKENS_FIRST

    def availability(self) -> Availability:
        absent = missing("torch", "lmdeploy")
        if absent:
            return Availability(False, f"{absent} is not installed (the extra 'engine' and requirements/engine.txt)")
        return Availability(True, f"torch {version('torch')}, LMDeploy {version('lmdeploy')}")

    def graph_mode(self) -> Availability:
        wanted = os.environ.get("CXX", "").split()[:1] or ["g++", "clang++"]
        found = next((path for path in map(shutil.which, wanted) if path), None)
        if found is None:
            return Availability(False, f"there is no C++ compiler ({', '.join(wanted)})")
        return Availability(True, f"decode steps compiled by TorchInductor with {found}")

    def capabilities(self, mode: Mode) -> Mapping[str, Capability]:
        if mode is Mode.EAGER:
            return _EAGER
        return {
            name: Capability(f"compiled into the decode step; outside it {has.how}", has.target)
            if name in _IN_THE_GRAPH
            else has
            for name, has in _EAGER.items()
        }
