"""Compiled decode steps on disk: found by what they depend on, made by one process while others wait for it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

FOLDER_VARIABLE = "PAGEMILL_ENGINE_GRAPH_CACHE"


def folder() -> Path:
    """`PAGEMILL_ENGINE_GRAPH_CACHE`, or pagemill/graphs in the user's cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "pagemill" / "graphs"


def key(step: torch.nn.Module, example: Sequence[Any], config: Any) -> str:
    """A name for all that a compiled step depends on: code, libraries, processor, threads, model and shapes."""
    parts: dict[str, Any] = {
        "code": _our_code(),
        "versions": [metadata.version(name) for name in ("torch", "lmdeploy", "transformers")],
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        # The same model in another folder is the same model.
        "config": {name: value for name, value in config.to_dict().items() if name != "_name_or_path"},
        "weights": [(name, _shape(each)) for name, each in step.named_parameters()],
        "inputs": [_shape(each) for each in example[:-1]],
        "caches": [[(_shape(cache), cache.stride()) for cache in layer] for layer in example[-1]],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def load_or_make(name: str, make: Callable[[str], None]) -> tuple[Path, bool]:
    """The package of that name; `make(path)` writes it where it is not there yet.

    Returns:
        Where it is, and whether it was made now.
    """
    path = folder() / f"{name}.pt2"
    if path.exists():
        return path, False
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, False
        unfinished = path.with_suffix(f".{os.getpid()}.pt2")
        try:
            make(str(unfinished))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return path, True


def _our_code() -> str:
    """A digest of the sources that the graph is traced from."""
    here = Path(__file__).parent
    traced = ("attention.py", "fused.py", "linear.py", "graph.py", "../lmdeploy_ops.py", "../reference/rotary.py")
    digest = hashlib.sha256()
    for path in (here / name for name in traced):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _shape(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
