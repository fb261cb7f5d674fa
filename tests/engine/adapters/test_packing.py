"""Weights in oneDNN's order give the products of the plain ones, and can be had back."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from engine.adapters.cpu import linear as packing  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.mark.parametrize("rows", [1, 2, 8, 33])
@pytest.mark.parametrize("with_bias", [False, True])
def test_products(rows: int, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(300, 448, generator=generator)
    bias = torch.randn(300, generator=generator) if with_bias else None
    x = torch.randn(1, rows, 448, generator=generator)
    expected = torch.nn.functional.linear(x, weight, bias)
    number = packing.keep_packed(weight, bias)
    for got in (
        packing.linear(x, packing.pack(weight), bias),
        packing.product_with_kept(x, number),
        packing.packed_linear(x, number, 300),
    ):
        assert got.shape == expected.shape
        torch.testing.assert_close(got, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))
    assert torch.equal(packing.kept(number), weight)


def test_small_and_half_precision_weights_stay_plain() -> None:
    assert not packing.is_worth_packing(torch.zeros(8, 8))
    assert not packing.is_worth_packing(torch.zeros(1024, 1024, dtype=torch.float16))
    assert packing.is_worth_packing(torch.zeros(1024, 1024))
