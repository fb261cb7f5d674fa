"""The live bench's workload follows from costs; its runs are long and not repeated here."""

from __future__ import annotations

from bench.balance_live import OUTPUTS, PROMPT, SLOTS, Run, carried_by, workload_of
from bench.balance_live import _report as report
from bench.balance_live import _simulated as simulated
from engine.balancer.costs import Costs

COSTS = Costs(
    prefill_request_s=0.03,
    text_token_s=1.5e-4,
    attention_s=0.0,
    step_s=0.03,
    step_kv_token_s=1e-6,
    step_sequence_s=1e-3,
    max_sequences=SLOTS,
    kv_capacity_tokens=100_000,
    tpot_bound_s=10.0,
    prefill_batch_tokens=PROMPT,
    join_steps=3,
)


def test_no_fixed_split_carries_both_kinds_and_a_following_one_does() -> None:
    work = workload_of(COSTS, 20.0, 0.8, 0)
    assert work.tables.output == OUTPUTS * work.prose.output
    prose, tables = (carried_by(COSTS, kind.output) for kind in (work.prose, work.tables))
    for split in prose:
        assert prose[split] < work.prose.rate or tables[split] < work.tables.rate
    assert prose["3:1"] > work.prose.rate and tables["1:3"] > work.tables.rate


def test_arrivals_are_the_same_for_a_seed_and_of_the_phase_that_they_fall_into() -> None:
    work = workload_of(COSTS, 20.0, 0.8, 3)
    assert work.arrivals == workload_of(COSTS, 20.0, 0.8, 3).arrivals != workload_of(COSTS, 20.0, 0.8, 4).arrivals
    assert all((20.0 <= one.at < 40.0) is (one.kind is work.tables) for one in work.arrivals)


def test_simulated_requests_are_in_time_by_the_paths_that_were_measured() -> None:
    work = workload_of(COSTS, 6.0, 0.8, 0)
    slow, fast = ({"prose": seconds, "tables": seconds} for seconds in (100.0, -100.0))
    assert simulated("3:1", work, COSTS, slow).in_time == len(work.arrivals)
    assert simulated("3:1", work, COSTS, fast).in_time == 0


def test_runs_that_are_as_the_simulator_says_agree_and_a_lost_request_is_told() -> None:
    work = workload_of(COSTS, 6.0, 0.8, 0)
    alone = {"prose": 0.5, "tables": 3.0}
    outcomes = {name: simulated(name, work, COSTS, alone) for name in ("ours", "2:2")}
    runs = {
        name: Run(["ok"] * len(work.arrivals), list(outcome.first), list(outcome.excess), outcome.in_time)
        for name, outcome in outcomes.items()
    }
    figures = {figure.name: figure.value for figure in report(runs, outcomes, work, {}).figures}
    assert figures["simulator_off_ttft_p50"] == figures["simulator_off_goodput"] == 0
    assert figures["lost_requests"] == 0
    runs["ours"].ends[0] = "instance_lost"
    figures = {figure.name: figure for figure in report(runs, outcomes, work, {}).figures}
    assert figures["lost_requests"].value == 1 and not figures["lost_requests"].ok
