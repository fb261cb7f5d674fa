from __future__ import annotations

from engine.balancer.costs import Costs
from engine.balancer.simulator.cluster import Cluster
from engine.balancer.simulator.experiment import Workload, report, run_seed, summarise
from engine.balancer.simulator.mix import pages, parse_mix
from engine.balancer.simulator.oracle import search
from engine.balancer.simulator.outcome import Outcome
from engine.balancer.simulator.policies import Scheduled, ours
from engine.balancer.simulator.spec import ClusterSpec

COSTS = Costs()
MIX = parse_mix("tables/30,prose/30")
SHIFT = Workload("shift", MIX.seconds, lambda seed: pages(MIX, 4, COSTS, seed), MIX.shifts)


def test_roles_follow_a_shift_from_tables_to_prose() -> None:
    outcome = Cluster(ClusterSpec.alike(8), COSTS, ours(), 4, MIX.seconds).run(pages(MIX, 8, COSTS, 0))
    aimed_before = [size for at, size in outcome.schedule if at < 30]
    aimed_after = [size for at, size in outcome.schedule if at >= 30]
    assert min(aimed_before) < max(aimed_after)
    assert outcome.flips >= 2
    assert outcome.decisions


def test_a_run_is_the_same_every_time() -> None:
    runs = [Cluster(ClusterSpec.alike(4), COSTS, ours(), 2, MIX.seconds).run(SHIFT.jobs(1)) for _ in range(2)]
    assert runs[0].excess == runs[1].excess
    assert runs[0].schedule == runs[1].schedule


def test_the_oracle_is_never_behind_a_policy_that_it_was_seeded_with() -> None:
    result = run_seed(SHIFT, 4, COSTS, 0, ("ours", "static", "even", "hybrid"), oracle_budget=4)
    assert result.best is not None
    assert result.best.in_time >= max(outcome.in_time for outcome in result.outcomes.values())
    assert result.best.tried <= 4
    assert 0 <= result.regret <= 1


def test_no_even_split_beats_the_best_static_one() -> None:
    result = run_seed(SHIFT, 4, COSTS, 2, ("static", "even"))
    assert result.outcomes["static"].in_time >= result.outcomes["even"].in_time


def test_the_oracle_climbs_to_a_better_schedule() -> None:
    """A stand-in for the simulator with one best schedule: size 5 until 20 s, 3 from then on."""

    only = [SHIFT.jobs(0)[0]] * 100

    def simulate(schedule: object, may_miss: int) -> Outcome:
        off = sum(abs(size - (5 if at < 20 else 3)) * 4 + abs(at - (0 if at < 20 else 20)) for at, size in schedule)  # type: ignore[attr-defined]
        outcome = Outcome("x", 1.0)
        outcome.open(only)
        for index in range(100):
            outcome.excess[index] = 0.0 if index < 100 - off else 1e6
        return outcome

    best = search(100, 8, [(60, ((0.0, 4), (26.0, 4)))], simulate, [((0.0, 5), (26.0, 3))], budget=60)
    assert best.schedule == ((0.0, 5), (20.0, 3))


def test_a_run_gives_up_once_too_many_jobs_were_late() -> None:
    jobs = SHIFT.jobs(0)
    outcome = Cluster(ClusterSpec.alike(4), COSTS, Scheduled(((0.0, 3),)), 3, MIX.seconds, may_miss=3).run(jobs)
    assert not outcome.complete
    assert outcome.late == 4


def test_means_come_with_the_half_width_of_their_interval() -> None:
    found = summarise([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert round(found["ci95"], 2) == 2.48


def test_a_report_has_every_policy_and_the_regret() -> None:
    results = [run_seed(SHIFT, 4, COSTS, seed, ("ours", "even"), oracle_budget=1) for seed in (0, 1)]
    content = report(results)
    assert set(content["policies"]) == {"ours", "even"}
    assert content["regret"]["mean"] >= 0
