"""Matrix products with weights in the order in which oneDNN reads them.

A plain product of a few rows reorders the weight at each call, which costs as much as the product. Reordered once,
when it is loaded, it takes the place of the weight: no memory more.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

# Below, the call costs more than the reordering saves.
WORTH_PACKING = 1 << 17
ROWS_HINT = 8


def is_worth_packing(weight: torch.Tensor) -> bool:
    """True for weights that are large enough and of a dtype that this CPU's oneDNN has kernels for."""
    if weight.layout != torch.strided or weight.dim() != 2 or weight.numel() < WORTH_PACKING:
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    has_bfloat16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or bool(has_bfloat16)


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The same numbers in oneDNN's order, as an opaque tensor; `unpack` gives them back."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS_HINT)


def unpack(weight: torch.Tensor) -> torch.Tensor:
    return weight.to_dense() if weight.is_mkldnn else weight


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    if weight.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


# Opaque tensors cannot be inputs of a graph: a graph names them by their number, which is the order of loading and so
# the same in every process that loads the model.
_packed: list[tuple[torch.Tensor, torch.Tensor | None]] = []


def keep_packed(weight: torch.Tensor, bias: torch.Tensor | None) -> int:
    """Pack a weight and keep it for this process; the number is what `packed_linear` takes."""
    _packed.append((pack(weight), None if bias is None else bias.detach()))
    return len(_packed) - 1


def kept(number: int) -> torch.Tensor:
    """The weight in its plain order."""
    return unpack(_packed[number][0])


def product_with_kept(x: torch.Tensor, number: int) -> torch.Tensor:
    """`linear` with a kept weight."""
    weight, bias = _packed[number]
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@torch.library.custom_op("pagemill::packed_linear", mutates_args=())
def packed_linear(x: torch.Tensor, number: int, out_features: int) -> torch.Tensor:
    """`product_with_kept` as a node of a graph."""
    return product_with_kept(x, number)


@packed_linear.register_fake
def _shape_of_packed_linear(x: torch.Tensor, number: int, out_features: int) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], out_features)
