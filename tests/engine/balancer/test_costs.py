from __future__ import annotations

from pathlib import Path

import pytest

from engine.balancer.costs import Costs
from engine.balancer.load import load_of


def test_a_visual_token_costs_more_than_a_text_token() -> None:
    costs = Costs()
    assert costs.prefill_s(load_of(1000, 0, 0)) > 5 * costs.prefill_s(load_of(0, 1000, 0))


def test_prefix_hits_are_not_prefilled_but_still_read_and_moved() -> None:
    costs = Costs()
    cold, warm = load_of(1000, 0, 100), load_of(1000, 0, 100, hit=0.9)
    assert costs.prefill_s(warm) < 0.2 * costs.prefill_s(cold)
    assert warm.kv_tokens == cold.kv_tokens
    assert warm.context == cold.context


def test_the_batch_is_bounded_by_slots_by_memory_and_by_the_time_of_a_step() -> None:
    assert Costs().batch(1000) == 64
    assert Costs(kv_capacity_tokens=10_000).batch(1000) == 10
    bounded = Costs(tpot_bound_s=0.008)
    assert bounded.step(bounded.batch(1000), bounded.batch(1000) * 1000) == pytest.approx(0.008)


def test_costs_survive_the_file_and_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    costs = Costs(step_s=0.01, error=(("prefill", 0.03),), source="measured")
    costs.save(path)
    assert Costs.load(path) == costs
    path.write_text('{"step_s": -1}')
    with pytest.raises(ValueError, match="step_s"):
        Costs.load(path)
    path.write_text('{"speed": 1}')
    with pytest.raises(ValueError, match="cost file"):
        Costs.load(path)


def test_slower_devices_take_longer_for_everything_they_compute() -> None:
    costs, slow = Costs(), Costs().slowed(3)
    load = load_of(500, 40, 200)
    assert slow.prefill_s(load) == pytest.approx(3 * costs.prefill_s(load))
    assert slow.decode_s(load) == pytest.approx(3 * costs.decode_s(load))
