"""The fused operators that are the whole boundary between the engine and a vendor. Light: no torch in here.

After dlinfer's list, with what it lacks: a meaning that can be tested, a tolerance, and a reference implementation of
each in plain torch (`engine.adapters.reference`), which is correct on any device and stands in where a vendor has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

FLOATS = ("float32", "bfloat16", "float16")
# Largest difference from the reference, relative to the largest number of the result, by dtype.
EXACT: Mapping[str, float] = MappingProxyType({"float32": 0.0, "bfloat16": 0.0, "float16": 0.0, "int64": 0.0})
ROUNDING: Mapping[str, float] = MappingProxyType({"float32": 2e-6, "bfloat16": 1.6e-2, "float16": 2e-3})
SUMS: Mapping[str, float] = MappingProxyType({"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3})


class Mode(StrEnum):
    """How a decode step runs: operator after operator, or as one compiled or captured graph."""

    EAGER = "eager"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the catalogue.

    Attributes:
        name: of the reference function, too.
        signature: arguments and results. T: tokens of the step, H: query heads, K: KV heads (H is a multiple of K),
            D: head size, B: sequences, n: anything. Tensors may be strided; the last dimension is contiguous.
        meaning: what is computed.
        reference: "module:function" of the reference.
        tolerance: largest difference allowed, relative to the largest number of the reference's result, by dtype.
        mutates: arguments that are written to.
    """

    name: str
    signature: str
    meaning: str
    reference: str
    tolerance: Mapping[str, float]
    mutates: tuple[str, ...] = ()


def _operator(
    name: str, family: str, signature: str, meaning: str, tolerance: Mapping[str, float], *mutates: str
) -> Operator:
    return Operator(name, signature, meaning, f"engine.adapters.reference.{family}:{name}", tolerance, mutates)


OPERATORS: tuple[Operator, ...] = (
    _operator(
        "rms_norm",
        "norm",
        "x (..., n), weight (n), eps -> (..., n)",
        "x / sqrt(mean(x^2) + eps) * weight over the last dimension, computed in float32",
        ROUNDING,
    ),
    _operator(
        "add_rms_norm",
        "norm",
        "x (..., n), residual (..., n), weight (n), eps -> normed (..., n), sum (..., n)",
        "rms_norm of x + residual, and that sum; neither argument is changed",
        ROUNDING,
    ),
    _operator(
        "layer_norm",
        "norm",
        "x (..., n), weight (n) or None, bias (n) or None, eps -> (..., n)",
        "(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension",
        ROUNDING,
    ),
    _operator(
        "rotary",
        "rotary",
        "query (T, H, D), key (T, K, D), cos (T, D), sin (T, D), interleaved -> query, key",
        "each head turned by its position: halves as one number's parts, or neighbours where interleaved; in place",
        ROUNDING,
        "query",
        "key",
    ),
    _operator(
        "fill_kv_cache",
        "kv_cache",
        "key (T, K, D), value (T, K, Dv), k_cache, v_cache (blocks, block_size, K, D or Dv), batch",
        "the step's keys and values into the slots that the block table gives their positions",
        EXACT,
        "k_cache",
        "v_cache",
    ),
    _operator(
        "prefill_attention",
        "attention",
        "query (T, H, D), k_cache, v_cache, batch, AttentionSpec, alibi (H), sink (H) -> (T, H, Dv)",
        "each sequence's queries, its last positions, against all of its keys in the paged cache; causal, or "
        "not; with a sliding window, soft cap, ALiBi slopes or attention sink where the spec has them",
        SUMS,
    ),
    _operator(
        "paged_decode_attention",
        "attention",
        "query (B, H, D), k_cache, v_cache, batch, AttentionSpec, alibi (H), sink (H) -> (B, H, Dv)",
        "prefill_attention where every sequence has exactly one query",
        SUMS,
    ),
    _operator(
        "vision_attention",
        "attention",
        "query (T, H, D), key (S, K, D), value (S, K, Dv), q_lens, kv_lens, AttentionSpec -> (T, H, Dv)",
        "attention within each of several sequences that lie one after the other, without a cache",
        SUMS,
    ),
    _operator(
        "silu_and_mul",
        "activation",
        "x (..., 2n) -> (..., n)",
        "silu(first half) * second half; x may be written over",
        ROUNDING,
        "x",
    ),
    _operator(
        "gelu_and_mul",
        "activation",
        "x (..., 2n), approximate ('none' or 'tanh') -> (..., n)",
        "gelu(first half) * second half; x may be written over",
        ROUNDING,
        "x",
    ),
    _operator(
        "linear",
        "linear",
        "x (..., n), weight (m, n), bias (m) or None -> (..., m)",
        "x times the transposed weight, plus bias",
        SUMS,
    ),
    _operator(
        "embedding",
        "linear",
        "ids (...), weight (vocabulary, n) -> (..., n)",
        "rows of the weight",
        EXACT,
    ),
    _operator(
        "multinomial_sampling",
        "sampling",
        "scores (B, n) probabilities, seeds (B), offsets (B), indices (B, n) -> (B)",
        "one of each row's indices, by its probability; the same seed and offset give the same, whatever else "
        "is in the batch",
        EXACT,
    ),
)
BY_NAME: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in OPERATORS})
