"""LMDeploy's interface to a device, for the CPU: operators from the dispatcher's table, plans for decode steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from lmdeploy.pytorch.backends.attention import AttentionMetadata, PagedAttentionBuildSpec
from lmdeploy.pytorch.backends.default import DefaultOpsBackend
from lmdeploy.pytorch.backends.graph_runner import GraphRunner
from lmdeploy.pytorch.backends.linear import LinearBuildSpec

from engine.adapters import lmdeploy_ops
from engine.adapters.catalogue import Mode
from engine.adapters.cpu import attention
from engine.adapters.cpu import linear as packing
from engine.adapters.dispatcher import Table, resolve
from engine.adapters.lmdeploy_ops import Linear, PagedAttention, PagedMetadata
from engine.interconnect.layout import Order


@dataclass
class CpuAttentionMetadata(PagedMetadata):
    """What the attention of every layer of a step needs, worked out once.

    Attributes:
        one_token_each: whether this is a step in which every sequence has one token.
        block_size: tokens a block.
        dtype: of the queries.
        made: the plan, once it is made.
    """

    one_token_each: bool = False
    block_size: int = 0
    dtype: torch.dtype = torch.float32
    made: attention.DecodePlan | None = None

    @property
    def plan(self) -> attention.DecodePlan | None:
        """Of a step of one token each, made when it is first asked for (a graph makes its own); None in other steps."""
        if self.made is None and self.one_token_each:
            most = int(self.kv_seqlens.max())
            self.made = attention.decode_plan(self.block_offsets, self.kv_seqlens, most, self.block_size, self.dtype)
        return self.made


class CpuPagedAttention(PagedAttention):
    """By the step's plan where there is one and our own functions were chosen; operator by operator otherwise."""

    def __init__(self, spec: PagedAttentionBuildSpec, table: Table) -> None:
        super().__init__(spec, table, Order.TOKENS_FIRST)
        ours = self.fill is attention.fill_kv_cache and self.decode is attention.paged_decode_attention
        plain = attention.is_plain(self.spec, None, None) and self.spec.window is None and not spec.alibi
        self.by_plan = ours and plain

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        attn_metadata: Any,
        k_scales_zeros: torch.Tensor | None = None,
        v_scales_zeros: torch.Tensor | None = None,
        learnable_sink: torch.Tensor | None = None,
        nsa_indices: torch.Tensor | None = None,
        inplace: bool = False,
    ) -> torch.Tensor:
        plan = attn_metadata.plan
        if plan is None or not self.by_plan or learnable_sink is not None:
            return super().forward(
                query,
                key,
                value,
                k_cache,
                v_cache,
                attn_metadata,
                k_scales_zeros,
                v_scales_zeros,
                learnable_sink,
                nsa_indices,
                inplace,
            )
        k_cache[plan.blocks, plan.offsets] = key
        v_cache[plan.blocks, plan.offsets] = value
        return attention.decode(query, k_cache, v_cache, plan, self.scale)


class CpuLinear(Linear):
    """Weights are put in oneDNN's order once they are loaded; LMDeploy's parameter is an empty one then."""

    def __init__(self, spec: LinearBuildSpec, table: Table) -> None:
        super().__init__(spec, table, Order.TOKENS_FIRST)
        self.out_features = spec.out_features
        self.number: int | None = None

    def update_weights(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.linear is not packing.linear or not packing.is_worth_packing(weight):
            return weight, bias
        self.number = packing.keep_packed(weight, bias)
        return weight.new_empty(0), bias

    def get_unquantized_weight(self, weight: torch.Tensor) -> torch.Tensor:
        return weight if self.number is None or weight.numel() else packing.kept(self.number)

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
        # A weight that was put there afterwards, like that of a tied embedding, is not the one that was packed.
        if self.number is None or weight.numel() or all_reduce:
            return super().forward(x, weight, bias, all_reduce, group, rank, scatter_size)
        if torch.compiler.is_compiling():
            return packing.packed_linear(x, self.number, self.out_features)
        return packing.product_with_kept(x, self.number)


class CpuOpsBackend(DefaultOpsBackend):
    """What LMDeploy asks of a device.

    Attributes:
        table: the dispatcher's choices in this process; `use` sets others, before an engine is built.
    """

    table: ClassVar[Table | None] = None

    @classmethod
    def use(cls, table: Table) -> None:
        cls.table = table

    @classmethod
    def choices(cls) -> Table:
        if cls.table is None:
            cls.table = resolve("cpu", Mode.EAGER)
        return cls.table

    @staticmethod
    def get_name() -> str:
        return "cpu"

    @classmethod
    def build_op(cls, spec: Any, *, enable_deterministic: bool = False) -> Any:
        if isinstance(spec, PagedAttentionBuildSpec):
            return CpuPagedAttention(spec, cls.choices())
        if isinstance(spec, LinearBuildSpec):
            return CpuLinear(spec, cls.choices())
        operator = lmdeploy_ops.build(spec, cls.choices())
        return operator or super().build_op(spec, enable_deterministic=enable_deterministic)

    @staticmethod
    def get_attention_metadata_cls() -> type[AttentionMetadata]:
        return CpuAttentionMetadata

    @classmethod
    def update_step_context(cls, step_context: Any) -> Any:
        step_context.attn_metadata = CpuAttentionMetadata(
            is_decoding=step_context.is_decoding,
            block_offsets=step_context.block_offsets,
            q_start_loc=step_context.q_start_loc,
            q_seqlens=step_context.q_seqlens,
            kv_seqlens=step_context.kv_seqlens,
            quant_policy=step_context.kv_quant_policy,
            one_token_each=step_context.is_decoding and step_context.max_q_seqlen == 1,
            block_size=step_context.cache_config.block_size,
            dtype=step_context.model_config.dtype,
        )
        return step_context

    @staticmethod
    def build_graph_runner(
        model: Any, model_config: Any, cache_config: Any, backend_config: Any, device: Any
    ) -> GraphRunner:
        if not backend_config.eager_mode and CpuOpsBackend.choices().mode is not Mode.GRAPH:
            CpuOpsBackend.use(resolve("cpu", Mode.GRAPH))
        if backend_config.eager_mode or CpuOpsBackend.choices().mode is not Mode.GRAPH:
            return GraphRunner(model, model_config, cache_config, backend_config, device)
        from engine.adapters.cpu.graph import CpuGraphRunner

        return CpuGraphRunner(model, model_config, cache_config, backend_config, device)

    @staticmethod
    def ccl_backend() -> str:
        return "gloo"

    @staticmethod
    def device_count() -> int:
        return 1
