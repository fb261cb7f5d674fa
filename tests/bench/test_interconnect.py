"""The bench of the interconnect moves what it says it moves."""

from __future__ import annotations

import pytest

from bench.interconnect import measure


def test_every_transport_of_ours_moves_right_bytes_and_gives_all_blocks_back() -> None:
    report = measure(rounds=1)
    figures = {figure.name: figure for figure in report.figures}
    assert set(figures) == {
        "shared_memory_against_copy",
        "tcp_against_raw_socket",
        "wrong_bytes",
        "blocks_held_afterwards",
    }
    assert figures["wrong_bytes"].value == 0
    assert figures["blocks_held_afterwards"].value == 0
    measured = report.details["gigabytes_a_second"]
    assert all(measured[name]["contiguous"]["best"] > 0 for name in ("in_process", "shared_memory", "tcp"))


def test_a_transport_that_is_not_there_is_said_before_anything_is_measured() -> None:
    with pytest.raises(ModuleNotFoundError, match="carrier_pigeon"):
        measure(rounds=1, extra=("carrier_pigeon",))
