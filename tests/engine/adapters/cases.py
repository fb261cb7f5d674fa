"""Inputs for every operator of the catalogue: shapes, dtypes, head ratios, odd lengths, strided caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from engine.adapters.batch import AttentionSpec, PagedBatch

FLOATS = (torch.float32, torch.bfloat16)
# (query heads, KV heads, head size)
HEADS = ((4, 4, 32), (14, 2, 64), (6, 3, 40))
# (new tokens, tokens in the cache after them) of each sequence
PREFILLS = (
    ((1, 1),),
    ((7, 7), (16, 16), (17, 17)),
    ((33, 33), (33, 33), (5, 40), (1, 23)),
    ((530, 547),),
    ((600, 600), (3, 3)),
)
DECODES = ((1,), (16, 17), (5, 33, 100, 15), (48, 48, 48))
BLOCK_SIZES = (16, 64)


@dataclass(frozen=True)
class Case:
    """One call. `arguments` makes fresh inputs at each call, the same every time."""

    operator: str
    name: str
    arguments: Callable[[], tuple[Any, ...]]
    dtype: torch.dtype


def cases() -> Iterator[Case]:
    for dtype in FLOATS:
        short = str(dtype).removeprefix("torch.")
        for name, operator, make in (*_small(dtype), *_attention(dtype)):
            yield Case(operator, f"{operator}-{short}-{name}", make, dtype)
    yield Case("multinomial_sampling", "multinomial_sampling", _sampling, torch.int64)


def paged(
    lengths: tuple[tuple[int, int], ...], block_size: int, heads: int, dim: int, dtype: torch.dtype, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, PagedBatch]:
    """Keys and values of sequences in shuffled blocks of a cache in LMDeploy's arrangement, which is strided."""
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-kv_len // block_size) for _, kv_len in lengths]
    blocks = sum(needed) + 3
    pool = torch.randn(blocks, 2, block_size, heads, dim, generator=generator).to(dtype)
    order = torch.randperm(blocks, generator=generator)
    # Past a sequence's last block the table holds whatever was there.
    table = torch.full((len(lengths), max(needed) + 2), blocks - 1, dtype=torch.int32)
    for row, count in enumerate(needed):
        table[row, :count] = order[:count]
        order = order[count:]
    batch = PagedBatch(table, [q for q, _ in lengths], [kv for _, kv in lengths], block_size)
    return pool[:, 0], pool[:, 1], batch


def _rand(*shape: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _small(dtype: torch.dtype) -> Iterator[tuple[str, str, Callable[[], tuple[Any, ...]]]]:
    for rows, width in ((1, 8), (3, 129), (17, 896)):
        shape = f"{rows}x{width}"

        def x(rows: int = rows, width: int = width, seed: int = 1) -> torch.Tensor:
            return _rand(rows, width, dtype=dtype, seed=seed)

        def row(width: int = width, seed: int = 2) -> torch.Tensor:
            return _rand(width, dtype=dtype, seed=seed)

        yield shape, "rms_norm", lambda x=x, row=row: (x(), row(), 1e-6)
        yield shape, "add_rms_norm", lambda x=x, row=row: (x(), x(seed=5), row(), 1e-6)
        yield shape, "layer_norm", lambda x=x, row=row: (x(), row(), row(seed=3), 1e-6)
        yield f"{shape}-bare", "layer_norm", lambda x=x: (x(), None, None, 1e-6)
        yield shape, "silu_and_mul", lambda x=x, w=width: (x(width=2 * w),)
        yield shape, "gelu_and_mul", lambda x=x, w=width: (x(width=2 * w), "none")
        yield f"{shape}-tanh", "gelu_and_mul", lambda x=x, w=width: (x(width=2 * w), "tanh")
        for out in (5, 300):
            weight = lambda w=width, out=out: _rand(out, w, dtype=dtype, seed=7)  # noqa: E731
            yield f"{shape}-{out}", "linear", lambda x=x, weight=weight: (x(), weight())
            yield (
                f"{shape}-{out}-bias",
                "linear",
                lambda x=x, weight=weight, out=out: (x(), weight(), _rand(out, dtype=dtype, seed=8)),
            )
    yield "ids", "embedding", lambda: (torch.tensor([[3, 0, 9], [9, 9, 1]]), _rand(10, 24, dtype=dtype))
    for heads, kv_heads, dim in HEADS:
        for interleaved in (False, True):
            yield (
                f"{heads}:{kv_heads}x{dim}-{'interleaved' if interleaved else 'halves'}",
                "rotary",
                lambda h=heads, k=kv_heads, d=dim, i=interleaved: (
                    *_query_and_key(h, k, d, dtype),
                    *_tables(d, dtype),
                    i,
                ),
            )


def _query_and_key(heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """As the model has them: parts of one tensor."""
    packed = _rand(5, heads + 2 * kv_heads, dim, dtype=dtype)
    query, key, _ = packed.split((heads, kv_heads, kv_heads), 1)
    return query, key


def _tables(dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.arange(5)[:, None] * 10000 ** -(torch.arange(0, dim, 2) / dim)
    both = torch.cat((angles, angles), -1)
    return both.cos().to(dtype), both.sin().to(dtype)


def _attention(dtype: torch.dtype) -> Iterator[tuple[str, str, Callable[[], tuple[Any, ...]]]]:
    for heads, kv_heads, dim in HEADS:
        shape = f"{heads}:{kv_heads}x{dim}"
        for block_size in BLOCK_SIZES:
            for number, lengths in enumerate(PREFILLS):
                name = f"{shape}-block{block_size}-{number}"
                yield name, "fill_kv_cache", _fill(lengths, block_size, kv_heads, dim, dtype)
                yield name, "prefill_attention", _attend(lengths, block_size, heads, kv_heads, dim, dtype)
            for number, kv_lens in enumerate(DECODES):
                lengths = tuple((1, kv_len) for kv_len in kv_lens)
                name = f"{shape}-block{block_size}-{number}"
                yield name, "paged_decode_attention", _attend(lengths, block_size, heads, kv_heads, dim, dtype)
        for number, lens in enumerate(((16,), (16, 16, 64), (7, 9, 9))):
            yield f"{shape}-{number}", "vision_attention", _vision(lens, heads, kv_heads, dim, dtype)
    kinds = {
        "window": AttentionSpec(0.2, window=(6, 6)),
        "cap": AttentionSpec(0.2, soft_cap=5.0),
        "all": AttentionSpec(0.2, causal=False),
    }
    for kind, spec in kinds.items():
        yield kind, "prefill_attention", _attend(PREFILLS[2], 16, 6, 3, 40, dtype, spec)
        yield kind, "paged_decode_attention", _attend(((1, 9), (1, 40)), 16, 6, 3, 40, dtype, spec)
    slopes = lambda: torch.linspace(0.1, 0.9, 6)  # noqa: E731
    for operator, lengths in (("prefill_attention", PREFILLS[2]), ("paged_decode_attention", ((1, 9), (1, 40)))):
        yield "alibi", operator, _attend(lengths, 16, 6, 3, 40, dtype, extra=lambda: (slopes(), None))
        yield "sink", operator, _attend(lengths, 16, 6, 3, 40, dtype, extra=lambda: (None, slopes()))


def _fill(
    lengths: tuple[tuple[int, int], ...], block_size: int, heads: int, dim: int, dtype: torch.dtype
) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        k_cache, v_cache, batch = paged(lengths, block_size, heads, dim, dtype)
        tokens = sum(q for q, _ in lengths)
        new = (_rand(tokens, heads, dim, dtype=dtype, seed=seed) for seed in (11, 12))
        return (*new, k_cache, v_cache, batch)

    return make


def _attend(
    lengths: tuple[tuple[int, int], ...],
    block_size: int,
    heads: int,
    kv_heads: int,
    dim: int,
    dtype: torch.dtype,
    spec: AttentionSpec | None = None,
    extra: Callable[[], tuple[Any, ...]] = tuple,
) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        k_cache, v_cache, batch = paged(lengths, block_size, kv_heads, dim, dtype)
        query = _rand(sum(q for q, _ in lengths), heads, dim, dtype=dtype, seed=13)
        return (query, k_cache, v_cache, batch, spec or AttentionSpec(dim**-0.5), *extra())

    return make


def _vision(
    lens: tuple[int, ...], heads: int, kv_heads: int, dim: int, dtype: torch.dtype
) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        query = _rand(sum(lens), heads, dim, dtype=dtype, seed=21)
        key, value = (_rand(sum(lens), kv_heads, dim, dtype=dtype, seed=seed) for seed in (22, 23))
        return query, key, value, list(lens), list(lens), AttentionSpec(dim**-0.5, causal=False)

    return make


def _sampling() -> tuple[Any, ...]:
    scores = _rand(64, 50, dtype=torch.float32).softmax(-1)
    indices = torch.arange(50).flip(0).expand(64, 50)
    return scores, torch.arange(64) * 7919, torch.arange(64), indices
