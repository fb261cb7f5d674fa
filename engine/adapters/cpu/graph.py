"""Graph mode on the CPU: decode steps as one compiled function.

The layers of a decode step, from embeddings to the last norm, are exported once with torch.export and compiled ahead
of time by TorchInductor into a package on disk. Batch size and number of blocks are symbols of the graph, so one
package serves every batch without padding it (but for a batch of one, which is padded to two: a size of one would be a
graph of its own). Weights are not part of the package: it works on the model's own.

What cannot run as a graph - prefill, pictures, a model that cannot be exported - runs eagerly, and `report` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from lmdeploy.pytorch.backends.graph_runner import GraphRunner

from engine.adapters.cpu import graph_cache
from engine.adapters.cpu.attention import decode_plan
from engine.lmdeploy_patches.torch_cuda import the_real_cuda

_log = logging.getLogger(__name__)

EXAMPLE_BLOCKS = 4
# The largest difference allowed between a freshly loaded graph and the eager step, relative to the largest number.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 2e-2}
Caches = Sequence[Sequence[torch.Tensor]]


class DecodeStep(torch.nn.Module):
    """The part of a decode step that is compiled, as a function of tensors alone."""

    def __init__(self, model: torch.nn.Module, block_size: int, *, mrope: bool) -> None:
        super().__init__()
        self.model = model
        self.block_size = block_size
        self.mrope = mrope

    def forward(
        self,
        embeds: torch.Tensor,
        positions: torch.Tensor,
        table: torch.Tensor,
        kv_lens: torch.Tensor,
        caches: list[tuple[torch.Tensor, ...]],
    ) -> torch.Tensor:
        """One token for each of B sequences.

        Args:
            embeds: (1, B, hidden).
            positions: (1, B), or (3, B) for a model with mrope.
            table: (B, n) blocks; entries past a sequence's last block may be anything.
            kv_lens: (B,), with the new token.
            caches: (keys, values) of each layer, which are written to.
        """
        from engine.adapters.cpu.backend import CpuAttentionMetadata

        plan = decode_plan(table, kv_lens, table.size(1) * self.block_size, self.block_size, embeds.dtype)
        metadata = CpuAttentionMetadata(is_decoding=True, block_offsets=table, made=plan)
        extra = {"mrope_position_ids": positions} if self.mrope else {}
        out: torch.Tensor = self.model(
            input_ids=None,
            position_ids=positions[:1],
            past_key_values=caches,
            attn_metadata=metadata,
            inputs_embeds=embeds,
            **extra,
        )
        return out


class CpuGraphRunner(GraphRunner):
    """Runs decode steps as a graph and everything else eagerly.

    Attributes:
        report: what became of the graph: "not needed yet", "running ...", or why steps run eagerly.
        graph_steps, eager_decode_steps: how many decode steps ran as a graph, and how many could not.
    """

    def __init__(
        self, model: Any, model_config: Any, cache_config: Any, backend_config: Any, device: Any, **kwargs: Any
    ) -> None:
        super().__init__(model, model_config, cache_config, backend_config, device, **kwargs)
        self.report = "not needed yet"
        self.graph_steps = 0
        self.eager_decode_steps = 0
        self._graph: Any = None
        self._tried = False
        self._mrope = bool(getattr(model_config, "use_mrope", False))

    def __call__(self, **kwargs: Any) -> Any:
        caches = kwargs.get("past_key_values")
        if not self._tried and caches:
            self._tried = True
            self._prepare(caches)
        if not kwargs["attn_metadata"].one_token_each:
            return self.model(**kwargs)
        if self._graph is None or not self._fits(kwargs):
            self.eager_decode_steps += 1
            return self.model(**kwargs)
        self.graph_steps += 1
        return self._run(**kwargs)

    def _fits(self, kwargs: dict[str, Any]) -> bool:
        """Whether this call is one that the graph was made for."""
        known = {"input_ids", "position_ids", "past_key_values", "attn_metadata", "mrope_position_ids"}
        others = any(value is not None for name, value in kwargs.items() if name not in known)
        has_mrope = kwargs.get("mrope_position_ids") is not None
        return not others and has_mrope == self._mrope

    def _run(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: Caches,
        attn_metadata: Any,
        mrope_position_ids: torch.Tensor | None = None,
        **_nothing: Any,
    ) -> torch.Tensor:
        embeds = self.model.get_input_embeddings()(input_ids)
        positions = mrope_position_ids if self._mrope and mrope_position_ids is not None else position_ids
        batch = embeds.size(1)
        kv_lens = attn_metadata.kv_seqlens.long()
        count = -(-int(kv_lens.max()) // attn_metadata.block_size)
        table = attn_metadata.block_offsets[:, :count].long()
        if table.size(1) == 1:
            table = table.expand(batch, 2)
        if batch == 1:
            # The same token again, into the same slot with the same numbers.
            embeds, positions = embeds.expand(1, 2, -1), positions.expand(-1, 2)
            table, kv_lens = table.expand(2, -1), kv_lens.expand(2)
        flat = [embeds, positions, table, kv_lens]
        inputs = [each.contiguous() for each in flat] + [cache for layer in past_key_values for cache in layer]
        (out,) = self._graph.loader.boxed_run(inputs)
        return out[:, :batch]

    def _prepare(self, caches: Caches) -> None:
        """Load the graph from disk, or make it; on any failure say why and stay eager."""
        try:
            self._graph, how = self._load_or_compile(caches)
            self.report = f"running {how}"
        except Exception as error:  # noqa: BLE001 - export and the compiler fail in ways without number; eager is right
            self.report = f"eager: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            _log.warning("No graph for decode steps, they run eagerly. %s", self.report)

    def _load_or_compile(self, caches: Caches) -> tuple[Any, str]:
        step = DecodeStep(self.model, self.cache_config.block_size, mrope=self._mrope).eval()
        example = self._example(caches)
        key = graph_cache.key(step, example, self.model.config)

        def compile_to(path: str) -> None:
            exported = torch.export.export(step, example, dynamic_shapes=_dynamic(caches), strict=False)
            torch._inductor.aoti_compile_and_package(
                exported,
                package_path=path,
                inductor_configs={"aot_inductor.package_constants_in_so": False},
            )

        with torch.inference_mode(), the_real_cuda():
            path, made = graph_cache.load_or_make(key, compile_to)
            graph = torch._inductor.aoti_load_package(str(path))
            own = {**dict(step.named_parameters()), **dict(step.named_buffers())}
            graph.load_constants(
                {name: own[name] for name in graph.get_constant_fqns()}, check_full_update=True, user_managed=True
            )
            self._verify(graph, step, example)
        return graph, f"{'compiled now' if made else 'loaded from'} {path.name}"

    def _example(self, caches: Caches) -> tuple[Any, ...]:
        """Inputs of a step for two sequences. The caches are new ones, of a few blocks."""
        hidden = self.model.get_input_embeddings().weight.size(-1)
        dtype, block_size = caches[0][0].dtype, self.cache_config.block_size
        generator = torch.Generator().manual_seed(0)
        lens = torch.tensor([block_size // 2, 2 * block_size])
        return (
            torch.randn(1, 2, hidden, generator=generator).to(dtype),
            (lens - 1).expand(3 if self._mrope else 1, 2).contiguous(),
            torch.tensor([[0, 0], [1, 2]]),
            lens,
            _few_blocks(caches),
        )

    def _verify(self, graph: Any, step: DecodeStep, example: tuple[Any, ...]) -> None:
        """Raise ArithmeticError unless graph and eager step agree, in what they return and in what they write."""
        *tensors, caches = example
        mine = _few_blocks(caches)
        expected = step(*(tensor.clone() for tensor in tensors), caches)
        (got,) = graph.loader.boxed_run([*tensors, *(cache for layer in mine for cache in layer)])
        pairs = [(got, expected)] + [
            (a, b) for x, y in zip(mine, caches, strict=True) for a, b in zip(x, y, strict=True)
        ]
        for ours, theirs in pairs:
            difference = float((ours.float() - theirs.float()).abs().max())
            if not difference <= TOLERANCE[theirs.dtype] * max(1.0, float(theirs.float().abs().max())):
                raise ArithmeticError(f"the compiled step differs from the eager one by {difference:.2g}")


def _few_blocks(caches: Caches) -> list[tuple[torch.Tensor, ...]]:
    """Small empty caches with the strides of these, for which the graph is made. (A clone would be contiguous.)"""
    return [
        tuple(
            torch.empty_strided((EXAMPLE_BLOCKS, *cache.shape[1:]), cache.stride(), dtype=cache.dtype).zero_()
            for cache in layer
        )
        for layer in caches
    ]


def _dynamic(caches: Caches) -> dict[str, Any]:
    batch, blocks = torch.export.Dim("batch", min=2, max=4096), torch.export.Dim("blocks", min=2, max=1 << 20)
    cache_blocks = torch.export.Dim("cache_blocks", min=2, max=1 << 30)
    return {
        "embeds": {1: batch},
        "positions": {1: batch},
        "table": {0: batch, 1: blocks},
        "kv_lens": {0: batch},
        "caches": [tuple({0: cache_blocks} for _ in layer) for layer in caches],
    }
