"""Recorded arrivals and lengths, from CSV files, as jobs of one request each."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from engine.balancer.costs import Costs
from engine.balancer.load import load_of, total
from engine.balancer.simulator.jobs import Job, job, request
from engine.balancer.simulator.mix import capacity

SPREAD_S = 20.0
"""Copies of a recorded request are moved by up to so many seconds to either side."""

ARRIVAL = ("timestamp", "timestamp_ms", "arrival", "arrival_s", "arrived_at")
PROMPT = ("contexttokens", "input_length", "input_tokens", "prompt_tokens")
OUTPUT = ("generatedtokens", "output_length", "output_tokens")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded request: seconds from the beginning of the trace, tokens in, tokens out."""

    at: float
    prompt: int
    output: int


def read_trace(path: Path) -> list[Recorded]:
    """Read a CSV with a header: arrival (seconds, `..._ms` milliseconds, or a date and time), prompt and output.

    Known names, in any case: timestamp, timestamp_ms, arrival; ContextTokens, input_length, input_tokens;
    GeneratedTokens, output_length, output_tokens. Requests without a prompt are left out.

    Raises:
        ValueError: a column is missing, or a line cannot be read; with the line's number.
        OSError: the file cannot be read.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        names = {name.strip().lower(): name for name in reader.fieldnames or []}
        columns = []
        for choices in (ARRIVAL, PROMPT, OUTPUT):
            column = next((names[name] for name in choices if name in names), None)
            if column is None:
                raise ValueError(f"{path}: no column {' or '.join(choices)} in the header")
            columns.append(column)
        scale = 1e-3 if columns[0].lower().endswith("_ms") else 1.0
        recorded = []
        for row in reader:
            try:
                recorded.append(
                    Recorded(
                        _seconds(row[columns[0]]) * scale, int(float(row[columns[1]])), int(float(row[columns[2]]))
                    )
                )
            except (TypeError, ValueError):
                raise ValueError(f"{path}, line {reader.line_num}: not an arrival with two lengths") from None
    recorded = sorted((r for r in recorded if r.prompt > 0), key=lambda r: r.at)
    if not recorded:
        raise ValueError(f"{path} holds no request")
    return [Recorded(r.at - recorded[0].at, r.prompt, max(1, r.output)) for r in recorded]


def replay(
    recorded: Sequence[Recorded],
    instances: int,
    costs: Costs,
    seed: int,
    load: float | None = None,
    window_s: float | None = None,
    name: str = "trace",
) -> list[Job]:
    """A recorded trace as jobs, thickened or thinned to a load without changing its pace.

    Args:
        recorded: from `read_trace`.
        instances: of speed 1, that `load` is a share of.
        costs: for loads and zero-load paths.
        seed: chooses the window, and how copies are spread.
        load: mean demand over the whole trace, as a share of what the best split for it carries; None replays it as
            it is. A window may have more or less.
        window_s: seconds taken out of the trace, from a place that the seed chooses; None takes all.
        name: what the jobs are called.
    """
    rng = random.Random(seed)
    length = recorded[-1].at
    begin = rng.uniform(0, max(0.0, length - window_s)) if window_s else 0.0
    end = begin + window_s if window_s else length + 1e-6
    window = [r for r in recorded if begin <= r.at < end]
    if not window:
        return []
    copies = 1.0
    if load is not None:
        mean = total(load_of(0, r.prompt, r.output) for r in recorded).scaled(1 / len(recorded))
        copies = load * capacity(mean, instances, costs) * length / len(recorded)
    jobs = []
    for r in window:
        whole = int(copies) + (rng.random() < copies - int(copies))
        for copy in range(whole):
            at = r.at - begin + (rng.uniform(-SPREAD_S, SPREAD_S) if copy else 0.0)
            # Folded back at the ends, so that nothing is lost there.
            at = min(end - begin - 1e-6, abs(at) if at < end - begin else 2 * (end - begin) - at)
            jobs.append(job(at, name, (request(name, 0, r.prompt, r.output, costs),), (), costs))
    return sorted(jobs, key=lambda j: j.at)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        # Seven digits of a second, as Azure's traces have, are one more than Python reads.
        whole, _, fraction = text.strip().partition(".")
        return datetime.fromisoformat(whole).timestamp() + float(f"0.{fraction or 0}")
