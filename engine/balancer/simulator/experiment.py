"""One workload, several policies, several seeds: means with confidence intervals, and regret against the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, stdev
from typing import Any

from engine.balancer.costs import Costs
from engine.balancer.load import load_of, total
from engine.balancer.simulator import oracle
from engine.balancer.simulator.cluster import Cluster
from engine.balancer.simulator.jobs import Job
from engine.balancer.simulator.outcome import Outcome
from engine.balancer.simulator.policies import Fixed, MixedPool, Scheduled, matching, ours, threshold
from engine.balancer.simulator.spec import ClusterSpec, Policy

POLICIES = ("ours", "static", "even", "matching", "threshold", "mixed", "hybrid")
"""Names of policies: `static` is the best fixed split in hindsight, `even` half and half, `mixed` a mixed pool after
Splitwise, `hybrid` colocated."""

DYNAMIC: dict[str, Callable[[], Policy]] = {
    "ours": ours,
    "matching": matching,
    "threshold": threshold,
    "mixed": MixedPool,
}

# Two-sided 95% of Student's t by degrees of freedom, then the normal distribution's.
T_95 = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12)


@dataclass(frozen=True, slots=True)
class Workload:
    """Attributes:
    name: for people.
    duration_s: seconds in which jobs arrive.
    jobs: makes the jobs of a seed.
    shifts: seconds at which the mix changes.
    """

    name: str
    duration_s: float
    jobs: Callable[[int], list[Job]]
    shifts: tuple[float, ...] = ()


@dataclass(slots=True)
class SeedResult:
    """One seed: the outcome of each policy by name, and the oracle if it was asked for."""

    seed: int
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    static_split: int = 0
    best: oracle.Best | None = None

    @property
    def regret(self) -> float:
        """Share of the oracle's goodput that ours misses; never negative."""
        assert self.best is not None
        return 1 - self.outcomes["ours"].in_time / self.best.in_time if self.best.in_time else 0.0


def run_seed(
    workload: Workload,
    instances: int,
    costs: Costs,
    seed: int,
    policies: Iterable[str] = POLICIES,
    oracle_budget: int = 0,
) -> SeedResult:
    """Simulate every policy on the same jobs.

    Args:
        workload: what arrives.
        instances: of speed 1.
        costs: of the devices; the policies know them.
        seed: of the jobs.
        policies: names out of POLICIES.
        oracle_budget: simulations that the oracle may make; 0 leaves it out.
    """
    jobs = workload.jobs(seed)
    spec = ClusterSpec.alike(instances)

    def simulate(policy: Policy, prefill: int, hybrid: bool = False, may_miss: float = math.inf) -> Outcome:
        return Cluster(spec, costs, policy, prefill, workload.duration_s, hybrid=hybrid, may_miss=may_miss).run(jobs)

    result = SeedResult(seed)
    for name in policies:
        if name == "static":
            result.outcomes[name], result.static_split = best_static(jobs, instances, costs, simulate)
        elif name == "even":
            result.outcomes[name] = simulate(Fixed("even"), instances // 2)
        elif name == "hybrid":
            result.outcomes[name] = simulate(Fixed("hybrid"), 0, True)
        else:
            result.outcomes[name] = simulate(DYNAMIC[name](), instances // 2)
    if oracle_budget:
        result.best = _oracle(workload, result, jobs, instances, costs, simulate, oracle_budget)
    return result


def best_static(
    jobs: Sequence[Job], instances: int, costs: Costs, simulate: Callable[..., Outcome]
) -> tuple[Outcome, int]:
    """The fixed split with most jobs in time: a climb from where the whole workload balances. Answers it and its
    prefill instances. Splits that fall behind the best so far are given up early.
    """
    start = balanced_split(jobs, instances, costs)
    best, split = simulate(Fixed(), start), start
    for direction in (-1, 1):
        at, misses = start + direction, 0
        while 1 <= at < instances and misses < 2:
            outcome = simulate(Fixed(), at, may_miss=best.late)
            if outcome.complete and outcome.in_time > best.in_time:
                best, split, misses = outcome, at, 0
            else:
                misses += 1
            at += direction
    return best, split


def balanced_split(jobs: Sequence[Job], instances: int, costs: Costs) -> int:
    """Prefill instances of the split that carries most of these jobs, all taken together."""
    load = total(load_of(r.visual, r.text, r.output) for j in jobs for r in (*j.first, *j.then))
    prefill, decode = costs.prefill_s(load), costs.decode_s(load)
    return max(range(1, instances), key=lambda n: min(n / max(1e-9, prefill), (instances - n) / max(1e-9, decode)))


def _oracle(
    workload: Workload,
    result: SeedResult,
    jobs: Sequence[Job],
    instances: int,
    costs: Costs,
    simulate: Callable[..., Outcome],
    budget: int,
) -> oracle.Best:
    seeds: list[tuple[int, oracle.Schedule | None]] = []
    for name, outcome in result.outcomes.items():
        if name in ("static", "even"):
            split = result.static_split if name == "static" else instances // 2
            seeds.append((outcome.in_time, ((0.0, split),)))
        else:
            seeds.append((outcome.in_time, tuple(outcome.schedule) if name in DYNAMIC and outcome.schedule else None))
    bounds = (0.0, *workload.shifts, workload.duration_s)
    phases = []
    for begin, end in pairwise(bounds):
        phase = [j for j in jobs if begin <= j.at < end]
        phases.append((begin, balanced_split(phase, instances, costs)))
    candidates = [tuple((max(0.0, at + late), size) for at, size in phases) for late in (2.0, 5.0, -1.0, 8.0)]

    def run(schedule: oracle.Schedule, may_miss: int) -> Outcome:
        return simulate(Scheduled(schedule), schedule[0][1], may_miss=may_miss)

    return oracle.search(len(jobs), instances, seeds, run, candidates, budget)


def summarise(values: Sequence[float]) -> dict[str, float]:
    """Mean and half width of its 95% confidence interval over seeds."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return {"mean": math.nan, "ci95": math.nan}
    if len(finite) == 1:
        return {"mean": finite[0], "ci95": math.nan}
    factor = T_95[len(finite) - 1] if len(finite) <= len(T_95) else 1.96
    return {"mean": mean(finite), "ci95": factor * stdev(finite) / math.sqrt(len(finite))}


def report(results: Sequence[SeedResult]) -> dict[str, Any]:
    """Means over seeds for each policy, with regret where the oracle ran; ready for JSON."""
    policies: dict[str, Any] = {}
    for name in results[0].outcomes:
        summaries = [result.outcomes[name].summary() for result in results]
        policies[name] = {key: summarise([s[key] for s in summaries]) for key in summaries[0]}
    answer: dict[str, Any] = {"seeds": len(results), "policies": policies}
    if "static" in policies:
        answer["static_split"] = [result.static_split for result in results]
    if all(result.best for result in results):
        best = [result.best.in_time / result.outcomes["ours"].duration_s for result in results if result.best]
        answer["oracle"] = {"goodput_jobs_s": summarise(best)}
        answer["regret"] = summarise([result.regret for result in results])
    return answer


def jsonable(value: Any) -> Any:
    """`value` with NaN and infinities, which JSON does not know, as None."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
