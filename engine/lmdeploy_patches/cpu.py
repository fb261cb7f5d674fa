"""The patches that let LMDeploy's engine run on the CPU, each with the hook that it replaces."""

from __future__ import annotations

import functools
from typing import Any

from engine.lmdeploy_patches.errors import LMDeployChanged
from engine.lmdeploy_patches.hooks import find, function, replace, with_constant, with_default

MAX_BATCH_SIZE = 64
_installed = False

# Where LMDeploy writes its device as a literal, on the path of one engine in one process.
DEVICE_LITERALS = (
    "lmdeploy.pytorch.engine.model_agent.agent:BaseModelAgent.__init__",
    "lmdeploy.pytorch.engine.model_agent.agent:BaseModelAgent._warmup_prefill",
    "lmdeploy.pytorch.engine.model_agent.agent:BaseModelAgent.warmup",
    "lmdeploy.pytorch.engine.cache_engine.engine:CacheEngine.allocate_gpu_cache",
    "lmdeploy.pytorch.engine.cache_engine.state:StateCacheEngine.__init__",
)


def install_cpu(kv_bytes: int) -> None:
    """All of them, once. The order matters only for the first: LMDeploy's modules look at torch.cuda when imported."""
    global _installed
    if _installed:
        return
    from engine.lmdeploy_patches.torch_cuda import stand_in_for_cuda

    stand_in_for_cuda(kv_bytes)
    accept_the_device()
    choose_the_backend()
    name_the_default_device()
    say_what_the_device_can()
    keep_the_dtype()
    write_the_device()
    copy_inputs()
    copy_outputs()
    leave_rotary_tables_uncompiled()
    _installed = True


def accept_the_device() -> None:
    """`PytorchEngineConfig` knows a closed list of devices."""
    hook = "lmdeploy.messages:PytorchEngineConfig.__post_init__"
    original = function(hook, ["self"])
    if "device_type" not in original.__code__.co_names:
        raise LMDeployChanged(hook, "does not look at device_type any more")

    @functools.wraps(original)
    def checked(self: Any) -> None:
        device = self.device_type
        if device == "cpu":
            self.device_type = "cuda"
        try:
            original(self)
        finally:
            self.device_type = device

    replace(hook, checked)


def choose_the_backend() -> None:
    """The selector of backends is a chain of comparisons without an entry point."""
    hook = "lmdeploy.pytorch.backends.selector:_get_backend"
    original = function(hook, [])
    manager = function("lmdeploy.pytorch.backends.selector:get_device_manager", [])
    backend: list[Any] = []

    @functools.wraps(original)
    def chosen() -> Any:
        if manager().current_context().device_type != "cpu":
            return original()
        if not backend:
            from engine.adapters.cpu.backend import CpuOpsBackend

            backend.append(CpuOpsBackend)
        return backend[0]

    replace(hook, chosen)


def name_the_default_device() -> None:
    """The device that is meant where no context names one."""
    hook = "lmdeploy.pytorch.devices:DefaultContext"
    if getattr(find(hook), "device_type", None) not in ("cuda", "cpu"):
        raise LMDeployChanged(hook, "has no device_type 'cuda' any more")
    find(hook).device_type = "cpu"


def say_what_the_device_can() -> None:
    """bfloat16, and how many sequences at once. Both are imported by name elsewhere, so replaced there as well."""
    bf16, batch = "lmdeploy.utils:is_bf16_supported", "lmdeploy.utils:get_max_batch_size"
    original_bf16, original_batch = function(bf16, ["device_type"]), function(batch, ["device_type"])

    @functools.wraps(original_bf16)
    def is_bf16_supported(device_type: str = "cuda") -> bool:
        return device_type in ("cpu", "auto") or bool(original_bf16(device_type))

    @functools.wraps(original_batch)
    def get_max_batch_size(device_type: str) -> int:
        return MAX_BATCH_SIZE if device_type == "cpu" else int(original_batch(device_type))

    for hook in (bf16, "lmdeploy.pytorch.config:is_bf16_supported"):
        find(hook)
        replace(hook, is_bf16_supported)
    for hook in (batch, "lmdeploy.pytorch.engine.config_builder:get_max_batch_size"):
        find(hook)
        replace(hook, get_max_batch_size)


def keep_the_dtype() -> None:
    """`dtype="auto"` would turn float32 into float16, which a CPU has no arithmetic for."""
    hook = "lmdeploy.pytorch.config:_update_torch_dtype"
    original = function(hook, ["config", "dtype", "device_type"])

    @functools.wraps(original)
    def update(config: Any, dtype: str, device_type: str = "auto") -> Any:
        if device_type == "cpu" and dtype == "auto" and _dtype_of(config.hf_config) != "bfloat16":
            dtype = "float32"
        return original(config, dtype, device_type=device_type)

    replace(hook, update)


def _dtype_of(hf_config: Any) -> str:
    """As written in a checkpoint's configuration; "" where it says nothing."""
    for owner in (hf_config, getattr(hf_config, "text_config", None)):
        dtype = getattr(owner, "dtype", None) or getattr(owner, "torch_dtype", None)
        if dtype is not None:
            return str(dtype).removeprefix("torch.")
    return ""


def write_the_device() -> None:
    """The canonical device is a literal in these functions."""
    for hook in DEVICE_LITERALS:
        with_constant(hook, "cuda", "cpu")
    with_default("lmdeploy.pytorch.check_env.torch:TorchChecker.__init__", "device", "cuda", "cpu")


def copy_inputs() -> None:
    """Inputs of a step go to the device: a copy there, so a copy here, because the scheduler reuses its tensors."""
    hook = "lmdeploy.pytorch.engine.model_agent.agent:_try_to_cuda"
    function(hook, ["val", "non_blocking"])

    def to_cpu(val: Any, non_blocking: bool = False) -> Any:
        if val is None:
            return None
        return val.clone() if hasattr(val, "clone") and hasattr(val, "data_ptr") else val.to_device("cpu")

    replace(hook, to_cpu)


def copy_outputs() -> None:
    """Outputs of a step come from the device: a copy there, so a copy here, because the next step writes over them."""
    hook = "lmdeploy.pytorch.engine.model_agent.agent:BatchedOutputs.to_cpu"
    original = function(hook, ["self"])

    @functools.wraps(original)
    def copied(self: Any) -> Any:
        import torch

        outputs = original(self)
        for name, value in vars(outputs).items():
            if isinstance(value, torch.Tensor):
                setattr(outputs, name, value.clone())
        return outputs

    replace(hook, copied)


def leave_rotary_tables_uncompiled() -> None:
    """LMDeploy compiles one small function at its first call, which takes seconds and gains nothing here."""
    hook = "lmdeploy.pytorch.backends.default.rotary_embedding:_rotary_embedding_fwd"
    compiled = find(hook)
    if not hasattr(compiled, "__wrapped__"):
        raise LMDeployChanged(hook, "is not a wrapped function any more")
    replace(hook, compiled.__wrapped__)
