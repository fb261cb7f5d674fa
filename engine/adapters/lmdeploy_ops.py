"""LMDeploy's operator classes, filled with the functions that the dispatcher chose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lmdeploy.pytorch.backends.activation import (
    GeluAndMulBuildSpec,
    GeluAndMulImpl,
    SiluAndMulBuildSpec,
    SiluAndMulImpl,
)
from lmdeploy.pytorch.backends.apply_rotary_emb import ApplyRotaryEmbBuildSpec, ApplyRotaryEmbImpl
from lmdeploy.pytorch.backends.attention import AttentionImpl, AttentionMetadata, PagedAttentionBuildSpec
from lmdeploy.pytorch.backends.default.embedding import DefaultEmbeddingImpl
from lmdeploy.pytorch.backends.default.linear import DefaultLinearImpl
from lmdeploy.pytorch.backends.embedding import EmbeddingBuildSpec
from lmdeploy.pytorch.backends.flash_attention import FlashAttentionBuildSpec, FlashAttentionImpl
from lmdeploy.pytorch.backends.linear import LinearBuildSpec
from lmdeploy.pytorch.backends.multinomial_sampling import MultinomialSamplingBuildSpec, MultinomialSamplingImpl
from lmdeploy.pytorch.backends.norm import LayerNormBuildSpec, LayerNormImpl, RMSNormBuildSpec, RMSNormImpl

from engine.adapters.batch import AttentionSpec, PagedBatch
from engine.adapters.dispatcher import Table
from engine.interconnect.layout import Order


def build(spec: Any, table: Table, kv_order: Order = Order.TOKENS_FIRST) -> Any | None:
    """The operator for one of LMDeploy's build specs, or None if the catalogue has nothing for it.

    Args:
        kv_order: how the vendor's cache blocks are laid out; ours have tokens first, another order is seen through.
    """
    maker = _MAKERS.get(type(spec))
    return maker(spec, table, kv_order) if maker else None


class RMSNorm(RMSNormImpl):
    """`rms_norm` and `add_rms_norm`."""

    def __init__(self, spec: RMSNormBuildSpec, table: Table, _order: Order) -> None:
        self.eps = spec.eps
        self.norm, self.add_norm = table["rms_norm"].load(), table["add_rms_norm"].load()

    def forward(self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        if residual is None:
            return self.norm(x, weight, self.eps)
        return self.add_norm(x, residual, weight, self.eps)


class LayerNorm(LayerNormImpl):
    """`layer_norm`, after the residual where there is one."""

    def __init__(self, spec: LayerNormBuildSpec, table: Table, _order: Order) -> None:
        self.eps = spec.eps
        self.norm = table["layer_norm"].load()

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
    ) -> Any:
        if residual is None:
            return self.norm(x, weight, bias, self.eps)
        total = x + residual
        return self.norm(total, weight, bias, self.eps), total


class ApplyRotary(ApplyRotaryEmbImpl):
    """`rotary`."""

    def __init__(self, _spec: ApplyRotaryEmbBuildSpec, table: Table, _order: Order) -> None:
        self.rotary = table["rotary"].load()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        inplace: bool = True,
        complex_mode: bool = False,
    ) -> Any:
        if not inplace:
            query, key = query.clone(), key.clone()
        return self.rotary(query, key, cos, sin, complex_mode)


class SiluAndMul(SiluAndMulImpl):
    """`silu_and_mul`."""

    def __init__(self, _spec: SiluAndMulBuildSpec, table: Table, _order: Order) -> None:
        self.act = table["silu_and_mul"].load()

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(x)


class GeluAndMul(GeluAndMulImpl):
    """`gelu_and_mul`."""

    def __init__(self, spec: GeluAndMulBuildSpec, table: Table, _order: Order) -> None:
        self.approximate = spec.approximate
        self.act = table["gelu_and_mul"].load()

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(x, self.approximate)


class Linear(DefaultLinearImpl):
    """`linear`; where weights are split over processes, LMDeploy's own, which adds the parts up."""

    def __init__(self, _spec: LinearBuildSpec, table: Table, _order: Order) -> None:
        self.linear = table["linear"].load()

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        all_reduce: bool = False,
        group: Any = None,
        rank: int = 0,
        scatter_size: list[int] | None = None,
    ) -> torch.Tensor:
        if all_reduce:
            return super().forward(x, weight, bias, all_reduce, group, rank, scatter_size)
        out: torch.Tensor = self.linear(x, weight, bias)
        return out


class Embedding(DefaultEmbeddingImpl):
    """`embedding`; where the vocabulary is split over processes, LMDeploy's own."""

    def __init__(self, spec: EmbeddingBuildSpec, table: Table, _order: Order) -> None:
        super().__init__(spec.start_index, spec.end_index)
        self.embedding = table["embedding"].load()

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, all_reduce: bool = False, group: Any = None
    ) -> torch.Tensor:
        if all_reduce:
            return super().forward(x, weight, all_reduce, group)
        out: torch.Tensor = self.embedding(x, weight)
        return out


class MultinomialSampling(MultinomialSamplingImpl):
    """`multinomial_sampling`."""

    def __init__(self, _spec: MultinomialSamplingBuildSpec, table: Table, _order: Order) -> None:
        self.sample = table["multinomial_sampling"].load()

    def forward(
        self, scores: torch.Tensor, seeds: torch.Tensor, offsets: torch.Tensor, indices: torch.Tensor | None = None
    ) -> torch.Tensor:
        if indices is None:
            indices = torch.arange(scores.size(1), device=scores.device).expand_as(scores)
        drawn: torch.Tensor = self.sample(scores, seeds, offsets, indices)
        return drawn


@dataclass
class PagedMetadata(AttentionMetadata):
    """LMDeploy's metadata with the step's sequences as the catalogue's operators take them.

    Attributes:
        batch: None for metadata of another backend; then it is made where it is needed.
    """

    batch: PagedBatch | None = None


class PagedAttention(AttentionImpl[AttentionMetadata]):
    """`fill_kv_cache`, then `paged_decode_attention` or `prefill_attention`."""

    def __init__(self, spec: PagedAttentionBuildSpec, table: Table, order: Order) -> None:
        super().__init__(
            spec.num_heads,
            spec.head_dim,
            spec.scale,
            spec.num_kv_heads,
            spec.v_head_dim,
            spec.alibi,
            spec.sliding_window,
            spec.logit_softcapping,
            causal=spec.causal,
        )
        self.spec = AttentionSpec(self.scale, spec.causal, _window(spec.sliding_window), spec.logit_softcapping or 0.0)
        self.order = order
        self.fill, self.decode = table["fill_kv_cache"].load(), table["paged_decode_attention"].load()
        self.prefill = table["prefill_attention"].load()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        attn_metadata: AttentionMetadata,
        k_scales_zeros: torch.Tensor | None = None,
        v_scales_zeros: torch.Tensor | None = None,
        learnable_sink: torch.Tensor | None = None,
        nsa_indices: torch.Tensor | None = None,
        inplace: bool = False,
    ) -> torch.Tensor:
        if k_scales_zeros is not None or nsa_indices is not None:
            raise NotImplementedError("quantised and sparse KV caches have no reference implementation")
        if self.order is Order.HEADS_FIRST:
            k_cache, v_cache = k_cache.transpose(1, 2), v_cache.transpose(1, 2)
        batch = paged_batch(attn_metadata, k_cache.size(1))
        if key is not None:
            self.fill(key, value, k_cache, v_cache, batch)
        attend = self.decode if batch.is_decoding else self.prefill
        out: torch.Tensor = attend(query, k_cache, v_cache, batch, self.spec, self.alibi_slopes, learnable_sink)
        return out


def paged_batch(metadata: AttentionMetadata, block_size: int) -> PagedBatch:
    """The step's sequences, kept with the metadata for the layers that follow."""
    batch: PagedBatch | None = getattr(metadata, "batch", None)
    if batch is None:
        batch = PagedBatch(
            metadata.block_offsets, metadata.q_seqlens.tolist(), metadata.kv_seqlens.tolist(), block_size
        )
        metadata.batch = batch
    return batch


class VarlenAttention(FlashAttentionImpl):
    """`vision_attention`."""

    def __init__(self, spec: FlashAttentionBuildSpec, table: Table, _order: Order) -> None:
        scale = spec.scale if spec.scale is not None else spec.head_dim**-0.5
        self.spec = AttentionSpec(scale, spec.causal, _window(spec.sliding_window), spec.logit_softcapping or 0.0)
        self.attend = table["vision_attention"].load()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        q_start_loc: torch.Tensor,
        q_seqlens: torch.Tensor,
        kv_start_loc: torch.Tensor,
        kv_seqlens: torch.Tensor,
        max_q_seqlen: int | None = None,
    ) -> torch.Tensor:
        out: torch.Tensor = self.attend(query, key, value, q_seqlens.tolist(), kv_seqlens.tolist(), self.spec)
        return out


def _window(window: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """LMDeploy's sliding window: an integer is meant to both sides, and what is not positive is none."""
    if window is None:
        return None
    before, after = (window, window) if isinstance(window, int) else window
    return (before, after) if before > 0 else None


_MAKERS: dict[type, Callable[[Any, Table, Order], Any]] = {
    RMSNormBuildSpec: RMSNorm,
    LayerNormBuildSpec: LayerNorm,
    ApplyRotaryEmbBuildSpec: ApplyRotary,
    SiluAndMulBuildSpec: SiluAndMul,
    GeluAndMulBuildSpec: GeluAndMul,
    LinearBuildSpec: Linear,
    EmbeddingBuildSpec: Embedding,
    MultinomialSamplingBuildSpec: MultinomialSampling,
    PagedAttentionBuildSpec: PagedAttention,
    FlashAttentionBuildSpec: VarlenAttention,
}
