"""The best schedule of roles in hindsight, by search inside the simulator, with the same flips and their costs.

Not a proof of optimality: a lower bound of what is possible, and never below any policy that it was seeded with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.balancer.simulator.outcome import Outcome

Schedule = tuple[tuple[float, int], ...]
"""(seconds, size of the prefill pool from then on), by time; the first at 0."""

STEPS_S = (4.0, -4.0, 2.0, -2.0, 8.0, -8.0, 1.0, -1.0)


@dataclass(frozen=True, slots=True)
class Best:
    """Attributes:
    in_time: jobs in time under the best schedule, or under the best seed where no schedule beats it.
    schedule: that schedule; None if the seed is no schedule of split roles, such as a hybrid cluster.
    tried: simulations made.
    """

    in_time: int
    schedule: Schedule | None
    tried: int


def search(
    jobs: int,
    instances: int,
    seeds: Iterable[tuple[int, Schedule | None]],
    simulate: Callable[[Schedule, int], Outcome],
    candidates: Iterable[Schedule] = (),
    budget: int = 30,
) -> Best:
    """Hill climbing over the times and sizes of a schedule.

    Args:
        jobs: how many there are: nothing can beat all of them in time.
        instances: of the cluster.
        seeds: outcomes known already, with the schedule that led to each.
        simulate: runs a schedule; may give up, leaving the outcome incomplete, once more than the given number of
            jobs are late.
        candidates: schedules worth trying before the climb, such as each phase's own best split.
        budget: simulations at most.
    """
    known = sorted(seeds, key=lambda seed: -seed[0])
    best, schedule = known[0]
    starts = [s for _, s in known if s is not None]
    current = schedule if schedule is not None else (starts[0] if starts else ((0.0, instances // 2),))
    # Where the best seed is no schedule, the climb begins from one that may be worse than it.
    current_value = best if schedule is not None else max((v for v, s in known if s is not None), default=-1)
    tried, seen = 0, {_tidy(s) for s in starts}

    def attempt(candidate: Schedule) -> bool:
        nonlocal tried, best, schedule, current, current_value
        candidate = _tidy(candidate)
        if candidate in seen or tried >= budget or best >= jobs:
            return False
        seen.add(candidate)
        tried += 1
        outcome = simulate(candidate, jobs - current_value - 1)
        if not outcome.complete or outcome.in_time <= current_value:
            return False
        current, current_value = candidate, outcome.in_time
        if current_value > best:
            best, schedule = current_value, candidate
        return True

    for candidate in candidates:
        attempt(candidate)
    better = True
    while better and tried < budget and best < jobs:
        better = any(attempt(move) for move in _moves(current, instances))
    return Best(best, schedule, tried)


def _moves(schedule: Schedule, instances: int) -> Sequence[Schedule]:
    moves: list[Schedule] = []
    for step in STEPS_S:
        for index in range(1, len(schedule)):
            at, size = schedule[index]
            moves.append((*schedule[:index], (max(0.0, at + step), size), *schedule[index + 1 :]))
    for index, (at, size) in enumerate(schedule):
        moves.extend(
            (*schedule[:index], (at, other), *schedule[index + 1 :])
            for other in (size - 1, size + 1)
            if 1 <= other < instances
        )
        if index:
            moves.append((*schedule[:index], *schedule[index + 1 :]))
    return moves


def _tidy(schedule: Schedule) -> Schedule:
    """In order of time, the first at 0, without changes that change nothing."""
    tidy: list[tuple[float, int]] = []
    for at, size in sorted(schedule, key=lambda change: change[0]):
        if not tidy:
            tidy.append((0.0, size))
        elif tidy[-1][1] != size:
            if tidy[-1][0] == at:
                tidy[-1] = (at, size)
            else:
                tidy.append((at, size))
    return tuple(tidy)
