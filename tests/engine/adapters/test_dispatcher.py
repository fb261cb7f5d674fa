"""The dispatcher chooses once, never fails for a missing operator, and says why it chose what it chose."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.adapters.catalogue import OPERATORS, Mode
from engine.adapters.dispatcher import UnknownVendor, VendorUnavailable, choose, resolve
from engine.adapters.vendor import Availability, Capability
from engine.adapters.vendors import VENDORS
from engine.adapters.vendors.packages import BUILD_SPECS
from engine.interconnect.layout import Order
from engine.lmdeploy_patches.gaps import gaps


class Incomplete:
    """A vendor with one operator and no graphs."""

    name = "incomplete"
    kv_order = Order.TOKENS_FIRST

    def availability(self) -> Availability:
        return Availability(True, "")

    def graph_mode(self) -> Availability:
        return Availability(False, "its compiler is on holiday")

    def capabilities(self, mode: Mode) -> Mapping[str, Capability]:
        return {"rms_norm": Capability("a kernel", "engine.adapters.reference.norm:rms_norm")}


def test_what_a_vendor_lacks_is_the_references_and_said_so() -> None:
    table = choose(Incomplete(), Mode.EAGER)
    assert table["rms_norm"].source == "vendor"
    assert table["linear"].source == "reference"
    assert "incomplete has none in eager mode" in table.describe()["eager.linear"]
    assert set(table.choices) == {operator.name for operator in OPERATORS}


def test_graphs_that_cannot_be_had_become_eager_with_the_reason() -> None:
    table = choose(Incomplete(), Mode.GRAPH)
    assert table.mode is Mode.EAGER
    assert table.describe()["mode"] == "eager: no graphs: its compiler is on holiday"


def test_every_gap_is_filled_where_lmdeploy_builds_it() -> None:
    missing = gaps(choose(Incomplete(), Mode.EAGER))
    # add_rms_norm is missing, and LMDeploy builds both norms as one.
    assert missing == set(BUILD_SPECS.values())


def test_every_operator_is_one_that_lmdeploy_builds() -> None:
    assert set(BUILD_SPECS) == {operator.name for operator in OPERATORS}


def test_the_cpu_has_every_operator_in_both_modes() -> None:
    for mode in Mode:
        assert set(VENDORS["cpu"].capabilities(mode)) == {operator.name for operator in OPERATORS}


def test_without_a_compiler_the_cpu_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    table = choose(VENDORS["cpu"], Mode.GRAPH)
    assert table.mode is Mode.EAGER
    assert "there is no C++ compiler" in table.mode_reason


@pytest.mark.parametrize("name", list(VENDORS))
def test_a_vendor_that_is_not_there_is_refused_with_what_is_missing(name: str) -> None:
    state = VENDORS[name].availability()
    assert state.reason
    if not state.ok:
        with pytest.raises(VendorUnavailable, match=f"{name} is unavailable: "):
            resolve(name)


def test_an_unknown_vendor_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownVendor, match="cpu, cuda, ascend, camb, maca"):
        resolve("abacus")


def test_only_cambricon_keeps_heads_first() -> None:
    assert [name for name, vendor in VENDORS.items() if vendor.kv_order is Order.HEADS_FIRST] == ["camb"]
