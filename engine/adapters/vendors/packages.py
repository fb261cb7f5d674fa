"""What can be learnt of a package without importing it: whether it is there, and what its source says."""

from __future__ import annotations

import ast
import importlib.util
from importlib import metadata
from pathlib import Path

# What LMDeploy builds for each operator of the catalogue.
BUILD_SPECS: dict[str, str] = {
    "rms_norm": "RMSNormBuildSpec",
    "add_rms_norm": "RMSNormBuildSpec",
    "layer_norm": "LayerNormBuildSpec",
    "rotary": "ApplyRotaryEmbBuildSpec",
    "fill_kv_cache": "PagedAttentionBuildSpec",
    "prefill_attention": "PagedAttentionBuildSpec",
    "paged_decode_attention": "PagedAttentionBuildSpec",
    "vision_attention": "FlashAttentionBuildSpec",
    "silu_and_mul": "SiluAndMulBuildSpec",
    "gelu_and_mul": "GeluAndMulBuildSpec",
    "linear": "LinearBuildSpec",
    "embedding": "EmbeddingBuildSpec",
    "multinomial_sampling": "MultinomialSamplingBuildSpec",
}


def missing(*packages: str) -> str:
    """The first of these packages that is not installed, or ""."""
    return next((name for name in packages if importlib.util.find_spec(name) is None), "")


def version(distribution: str) -> str:
    """Of an installed distribution; "?" where it has no metadata."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "?"


def specs_built_by(source: str) -> frozenset[str]:
    """Names of the build specs that one of LMDeploy's backends makes an operator for.

    Read from its source, because importing it takes the vendor's own libraries.

    Args:
        source: path within the package lmdeploy, like "pytorch/backends/cuda/op_backend.py".
    """
    found = importlib.util.find_spec("lmdeploy")
    if found is None or not found.submodule_search_locations:
        return frozenset()
    path = Path(found.submodule_search_locations[0], source)
    if not path.is_file():
        return frozenset()
    tests = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    return frozenset(
        node.args[1].id
        for node in tests
        if isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and len(node.args) == 2
        and isinstance(node.args[1], ast.Name)
        and node.args[1].id.endswith("BuildSpec")
    )
