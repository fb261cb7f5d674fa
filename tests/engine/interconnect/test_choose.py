"""The transport is chosen by measurement, with reasons; those of others only by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.interconnect.choose import choose
from engine.interconnect.errors import Unavailable
from engine.interconnect.plan import BlockPairs
from engine.interconnect.transports.catalogue import TRANSPORTS, availabilities
from engine.interconnect.transports.dlslime import DLSlime
from tests.engine.interconnect.harness import LAYOUT, SECRET, Engine, soon

Make = Callable[..., Engine]
OURS = ["in_process", "shared_memory", "tcp"]


def test_the_fastest_that_works_is_taken_and_every_other_gets_a_reason(engines: Make) -> None:
    sources = {kind: engines(kind, f"source-{kind}") for kind in OURS}
    readers = {kind: engines(kind, f"reader-{kind}") for kind in OURS}
    offers = {kind: sources[kind].metadata for kind in ("shared_memory", "tcp")}
    choice = choose({kind: readers[kind].transport for kind in OURS}, offers, deadline=soon(), probe_bytes=1 << 20)
    assert choice.name in offers
    assert choice.is_enough
    assert choice.bytes_per_second > 0
    assert set(choice.reasons) == set(OURS)
    assert choice.reasons["in_process"] == "the peer does not offer it"
    assert "fastest" in choice.reasons[choice.name]
    lease = sources[choice.name].transport.reserve([1], 30)
    choice.connection.submit(lease, BlockPairs.of([1], [2]), range(LAYOUT.layers), soon()).result()


def test_what_is_too_slow_is_said(engines: Make) -> None:
    source, reader = engines("tcp", "source"), engines("tcp", "reader")
    choice = choose(
        {"tcp": reader.transport}, {"tcp": source.metadata}, deadline=soon(), needed=1e15, probe_bytes=1 << 20
    )
    assert not choice.is_enough
    assert "needed" in choice.reasons["tcp"]


def test_a_transport_that_fails_leaves_the_others(engines: Make) -> None:
    kinds = ("shared_memory", "tcp")
    sources = {kind: engines(kind, f"source-{kind}") for kind in kinds}
    readers = {kind: engines(kind, f"reader-{kind}").transport for kind in kinds}
    offers = {kind: sources[kind].metadata for kind in kinds}
    offers["shared_memory"] = replace(offers["shared_memory"], address="@nobody-listens-here")
    choice = choose(readers, offers, deadline=soon(), probe_bytes=1 << 20)
    assert choice.name == "tcp"
    assert choice.reasons["shared_memory"].startswith("cannot connect")


def test_none_at_all_is_an_error_that_says_why(engines: Make) -> None:
    reader = engines("tcp", "reader")
    with pytest.raises(Unavailable, match="does not offer"):
        choose({"tcp": reader.transport}, {}, deadline=soon())


def test_every_transport_says_whether_it_works_here() -> None:
    found = availabilities()
    assert set(found) == {*OURS, "dlslime", "mooncake", "nixl"}
    assert all(found[name].ok for name in OURS)
    assert all(available.ok or available.reason for available in found.values())


def test_those_of_others_are_only_taken_by_name() -> None:
    by_name = {name for name, transport in TRANSPORTS.items() if transport.capabilities().only_by_name}
    assert by_name == {"dlslime", "mooncake", "nixl"}


def test_one_that_is_unavailable_refuses_to_start_with_the_same_reason() -> None:
    available = DLSlime.available()
    if available.ok:
        pytest.skip("DLSlime and an RDMA device are here")
    with pytest.raises(Unavailable, match="dlslime"):
        DLSlime("engine", secret=SECRET)
