"""`pagemill bench balance`: the balancer in simulation, against the best possible and against what others do.

Nothing of it is measured on engines: costs are those of `engine.balancer.costs.Costs`. Goodput counts pages (layout
and all crops), or single requests of a trace, that are in time: see `engine/balancer/simulator/outcome.py`.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench.checkpoint import Checkpoint, code_of
from bench.figures import Figure, Report, at_least, at_most
from engine.balancer.costs import Costs
from engine.balancer.planner import plan
from engine.balancer.simulator.cluster import Cluster
from engine.balancer.simulator.experiment import Workload, jsonable, run_seed, summarise
from engine.balancer.simulator.mix import mean_page, pages, parse_mix
from engine.balancer.simulator.policies import ours
from engine.balancer.simulator.spec import ClusterSpec
from engine.balancer.simulator.traces import Recorded, read_trace, replay
from engine.balancer.state import Forecast, InstanceState, PoolState
from engine.role import Role

REGRET_REACH = 0.10
SHIFT_REACH = 1.3
NOWHERE_UNDER = 0.97
FLIPS_REACH = 0.5
TTFT_REACH = 0.6
PLAN_REACH_S = 0.05
SIMULATION_REACH_S = 120.0
LARGE, SLOW = 1000, 100.0
"""Instances, and how many times slower than usual: about what a CPU does. So a hour holds requests enough to keep
them busy, and not more than can be simulated one by one."""

ORACLE_BUDGET = 12

PHASES = {60: "prose/60,tables/60,prose/60", 120: "prose/120,tables/120", 300: "prose/300,tables/300"}
"""By seconds of a phase."""

INTO_PREFILL = tuple(f"tables/{seconds},prose/{seconds}" for seconds in PHASES)
"""Shifts into a mix that an even split cannot prefill: what waiting for the first token is compared on, over all
requests from the shift on. After a shift the other way an even split has prefill instances to spare."""

OTHER_SHIFTS = ("tables/60,prose/60,tables/60", "paper/60,tables/60,paper/60", "prose/60,prose~form/120")
"""Further shifting mixes, for what must hold on every one; simulated on 8 instances, in bursts."""

STEADY = ("prose/180", "paper/180", "tables/180", "slide/180", "prose+tables/180", "prose/180@0.4")
TRACE_WINDOW_S = 600.0
TRACE_PEAK, PEAK_S = 0.9, 30.0
"""The busiest PEAK_S seconds of a trace ask for this share of what the best split carries. Of the Azure traces one is
silent half of the time and has peaks of six times the mean: more would leave nothing to compare but overload."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload on one cluster. `group` is "phases", "into prefill", "shift", "steady" or "trace"."""

    group: str
    name: str
    instances: int
    burstiness: float = 1.0
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What one seed of a cell came to, by policy: jobs in time, flips, and the seconds until the first token that 90%
    of the jobs from the first shift on stay below. Of jobs, not requests: the crops of pages begun go before the
    layouts of others, so a queue makes pages wait for their first request, and the many later ones hardly.
    """

    cell: Cell
    seed: int
    jobs: int
    in_time: dict[str, int]
    flips: dict[str, int]
    ttft_after: dict[str, float]
    regret: float | None


Progress = Callable[[int, int, float], None]
"""Told runs done, runs in all, and seconds still to go at the pace so far (NaN before the first)."""


def measure(
    seeds: int = 10,
    traces: Path | None = None,
    jobs: int = 1,
    instances: Sequence[int] = (8, 16),
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Simulate every cell with every seed.

    Args:
        seeds: repetitions of each cell.
        traces: folder of CSV files with arrival, input and output length; None leaves traces out, and the figure
            that asks for them falls short.
        jobs: processes.
        instances: sizes of the clusters with shifting phases.
        checkpoint: file that keeps what is done; what it holds already is not simulated again.
        progress: called after every run.

    Raises:
        FileNotFoundError: the folder holds no CSV file.
        UnusableCheckpoint: the checkpoint was written by other code, or is none.
    """
    cells = _cells(traces, instances)
    tasks = [(cell, seed) for cell in cells for seed in range(seeds)]
    runs = _all_runs(tasks, jobs, Checkpoint(checkpoint, code_of(_sources())), progress)
    plan_s, simulation_s, requests = large()
    figures = [*figures_of(runs), *_speed(plan_s, simulation_s)]
    failures = [f"{figure.name}: {figure.value}, wanted {figure.reach}" for figure in figures if not figure.ok]
    if traces is None:
        failures.append("no traces were given: --traces DIR")
    details = {
        "costs": Costs().source,
        "seeds": seeds,
        "instances": list(instances),
        "cells": [jsonable(_details(cell, [r for r in runs if r.cell == cell])) for cell in cells],
        "large": {"instances": LARGE, "requests": requests, "plan_s": plan_s, "simulation_s": simulation_s},
        "not_measured": "whatever needs live engines",
    }
    return Report("balance", tuple(figures), details, tuple(failures))


def _all_runs(
    tasks: Sequence[tuple[Cell, int]], jobs: int, checkpoint: Checkpoint, progress: Progress | None
) -> list[Run]:
    keys = [json.dumps([asdict(cell), seed]) for cell, seed in tasks]
    known = {task: checkpoint.get(key) for task, key in zip(tasks, keys, strict=True)}
    missing = [(task, key) for task, key in zip(tasks, keys, strict=True) if known[task] is None]
    begun, before = time.monotonic(), len(tasks) - len(missing)

    def note(task: tuple[Cell, int], key: str, result: Run) -> None:
        known[task] = asdict(result)
        checkpoint.put(key, asdict(result))
        if progress:
            here = sum(found is not None for found in known.values()) - before
            left = len(missing) - here
            progress(before + here, len(tasks), (time.monotonic() - begun) / here * left)

    if progress:
        progress(before, len(tasks), math.nan)
    if jobs == 1:
        for task, key in missing:
            note(task, key, run(*task))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            asked = {pool.submit(run, *task): (task, key) for task, key in missing}
            for done in as_completed(asked):
                note(*asked[done], done.result())
    return [Run(**{**found, "cell": cell}) for (cell, _), found in known.items() if found is not None]


def _sources() -> list[Path]:
    import engine.balancer

    return [Path(__file__), *Path(engine.balancer.__file__).parent.rglob("*.py")]


def run(cell: Cell, seed: int) -> Run:
    """Simulate one seed of a cell under the policies that its group is compared with."""
    costs = Costs()
    workload = _workload(cell, costs)
    policies = ["ours", "even"] if cell.group == "into prefill" else ["ours", "static"]
    if cell.group in ("phases", "shift"):
        policies += ["even", "matching", "threshold"]
    budget = ORACLE_BUDGET if cell.group == "phases" else 0
    result = run_seed(workload, cell.instances, costs, seed, policies, budget)
    since = workload.shifts[0] if workload.shifts else 0.0
    return Run(
        cell,
        seed,
        result.outcomes["ours"].jobs,
        {name: outcome.in_time for name, outcome in result.outcomes.items()},
        {name: outcome.flips for name, outcome in result.outcomes.items()},
        {name: outcome.first_quantile(0.9, since) for name, outcome in result.outcomes.items()},
        result.regret if result.best else None,
    )


def figures_of(runs: Iterable[Run]) -> list[Figure]:
    """The figures of all cells: goodput and regret of the worst cell, by its mean over seeds; flips of all shifting
    cells together; the first token's waiting as the mean over the cells that are about it.
    """
    cells: dict[Cell, list[Run]] = {}
    for one in runs:
        cells.setdefault(one.cell, []).append(one)
    phases = {cell: found for cell, found in cells.items() if cell.group == "phases"}
    shifting = {cell: found for cell, found in cells.items() if cell.group in ("phases", "shift")}

    def worst_ratio(of: dict[Cell, list[Run]], policy: str) -> float | None:
        return min((ratio(found, policy) for found in of.values() if policy in found[0].in_time), default=None)

    flips = sum(r.flips["ours"] for found in shifting.values() for r in found)
    eager = sum(r.flips["matching"] for found in shifting.values() for r in found)
    regrets = [mean(r.regret or 0.0 for r in found) for found in phases.values()]
    ttft = [
        1 - mean(r.ttft_after["ours"] / r.ttft_after["even"] for r in found)
        for cell, found in cells.items()
        if cell.group == "into prefill"
    ]
    return [
        at_most("worst_regret", max(regrets, default=None), "ratio", REGRET_REACH),
        at_least("goodput_over_static_on_shifts", worst_ratio(phases, "static"), "ratio", SHIFT_REACH),
        at_least("goodput_over_static_anywhere", worst_ratio(cells, "static"), "ratio", NOWHERE_UNDER),
        at_least("goodput_over_threshold_on_shifts", worst_ratio(shifting, "threshold"), "ratio", 1.0),
        at_least("goodput_over_matching_on_shifts", worst_ratio(shifting, "matching"), "ratio", 1.0),
        at_most("flips_over_matching", flips / eager if eager else None, "ratio", FLIPS_REACH),
        # Over all lengths of phases: what a short phase ends with is mostly the change itself.
        at_least("ttft_p90_saved_after_shift", mean(ttft) if ttft else None, "ratio", TTFT_REACH),
    ]


def ratio(runs: Sequence[Run], policy: str) -> float:
    """Mean goodput of ours over mean goodput of `policy`."""
    return sum(r.in_time["ours"] for r in runs) / max(1, sum(r.in_time[policy] for r in runs))


def large() -> tuple[float, float, int]:
    """1,000 instances through an hour of documents of a changing mix, on slow devices so that they are busy.

    Returns:
        Seconds of one core (not of the clock: other processes share it) for one plan, the slowest of ten, and for the
        simulation; requests simulated.
    """
    costs = Costs().slowed(SLOW)
    mix = parse_mix("prose~tables/3600@0.7")
    jobs = pages(mix, LARGE, costs, 0)
    started = time.thread_time()
    Cluster(ClusterSpec.alike(LARGE), costs, ours(interval_s=5.0), LARGE // 2, mix.seconds, sample_s=10.0).run(jobs)
    simulated = time.thread_time() - started
    return max(_plan_seconds() for _ in range(10)), simulated, sum(1 + len(job.then) for job in jobs)


def _plan_seconds() -> float:
    instances = tuple(
        InstanceState(f"i{n}", Role.PREFILL if n < LARGE // 2 else Role.DECODE, drain_s=n % 17, running=n % 64)
        for n in range(LARGE)
    )
    forecast = Forecast(mean_page("tables").scaled(0.9 * LARGE / 0.75))
    state, costs = PoolState(0.0, instances), Costs()
    started = time.thread_time()
    plan(state, forecast, costs)
    return time.thread_time() - started


def _speed(plan_s: float, simulation_s: float) -> list[Figure]:
    return [
        at_most("plan_of_1000_seconds", plan_s, "seconds", PLAN_REACH_S),
        at_most("hour_of_1000_seconds", simulation_s, "seconds", SIMULATION_REACH_S),
    ]


def _cells(traces: Path | None, instances: Sequence[int]) -> list[Cell]:
    cells = [Cell("phases", mix, count) for count in instances for mix in PHASES.values()]
    cells += [Cell("into prefill", mix, 8) for mix in INTO_PREFILL]
    cells += [Cell("shift", mix, 8, burstiness=4.0) for mix in OTHER_SHIFTS]
    cells += [Cell("steady", mix, 8) for mix in STEADY]
    if traces is not None:
        files = sorted(traces.glob("*.csv"))
        if not files:
            raise FileNotFoundError(f"no CSV file in {traces}")
        cells += [Cell("trace", file.name, 8, trace=str(file)) for file in files]
    return cells


def _workload(cell: Cell, costs: Costs) -> Workload:
    if cell.trace:
        recorded = read_trace(Path(cell.trace))
        load = TRACE_PEAK / _peak_over_mean(recorded)
        return Workload(
            cell.name,
            TRACE_WINDOW_S,
            lambda seed: replay(recorded, cell.instances, costs, seed, load, TRACE_WINDOW_S, cell.name),
        )
    mix = parse_mix(cell.name)
    return Workload(
        cell.name,
        mix.seconds,
        lambda seed: pages(mix, cell.instances, costs, seed, cell.burstiness),
        mix.shifts,
    )


def _peak_over_mean(recorded: Sequence[Recorded]) -> float:
    bins = Counter(int(request.at / PEAK_S) for request in recorded)
    return max(bins.values()) / (len(recorded) * PEAK_S / max(PEAK_S, recorded[-1].at))


def _details(cell: Cell, runs: Sequence[Run]) -> dict[str, Any]:
    names = list(runs[0].in_time)
    answer: dict[str, Any] = {
        "group": cell.group,
        "workload": cell.name,
        "instances": cell.instances,
        "jobs": mean(r.jobs for r in runs),
        "attainment": {name: summarise([r.in_time[name] / max(1, r.jobs) for r in runs]) for name in names},
        "flips": {name: mean(r.flips[name] for r in runs) for name in names},
        "goodput_over": {name: round(ratio(runs, name), 4) for name in names if name != "ours"},
        "ttft_p90_after_shift_s": {name: summarise([r.ttft_after[name] for r in runs]) for name in names},
    }
    if runs[0].regret is not None:
        answer["regret"] = summarise([r.regret or 0.0 for r in runs])
    return answer
