"""What a run came to: goodput, latencies, flips, utilisation."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.balancer.simulator.jobs import Job

EXCESS_SLO_S = 3.0
EXCESS_SLO_SHARE = 0.5
"""A job, or a request, is in time if it takes at most EXCESS_SLO_S and this share of its own zero-load path longer
than that path. The share is there for long outputs: a step of a full batch takes about 1.3 times as long as one
alone, so that a fixed allowance would ask that tables of thousands of tokens be decoded in half empty batches."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of the time line. Utilisations are instances busy on average since the sample before."""

    at: float
    prefill: int
    decode: int
    hybrid: int
    changing: int
    waiting_prefill: int
    waiting_decode: int
    running: int
    busy_prefill: float
    busy_decode: float


class Outcome:
    """Collects while a run goes on, summarises after it."""

    def __init__(self, policy: str, duration_s: float) -> None:
        self.policy, self.duration_s = policy, duration_s
        self.samples: list[Sample] = []
        self.flips = 0
        self.retried = 0
        self.late = 0
        self.schedule: list[tuple[float, int]] = []
        self.decisions: list[tuple[float, str]] = []
        self.ttft = array("d")
        self.tpot = array("d")
        self.requests_in_time = 0
        self.busy_prefill_s = self.busy_decode_s = 0.0
        self.ended_at = math.nan
        self.excess: array[float] = array("d")
        self.first: array[float] = array("d")
        self.simulated: Sequence[Job] = ()

    def open(self, jobs: Sequence[Job]) -> None:
        """Before the run."""
        self.simulated = jobs
        self.excess = array("d", [math.inf]) * len(jobs)
        self.first = array("d", [math.inf]) * len(jobs)

    def request(self, request: Any) -> None:
        """A request ended."""
        arrived, first, finished = request.arrived, request.first_token, request.finished
        self.ttft.append(first - arrived)
        job = request.job
        if job.stage < 2:
            self.first[job.index] = min(self.first[job.index], first - job.at)
        if request.output > 1:
            self.tpot.append((finished - first) / (request.output - 1))
        alone = request.spec.alone_s
        self.requests_in_time += finished - arrived - alone <= EXCESS_SLO_S + EXCESS_SLO_SHARE * alone

    def job(self, index: int, now: float) -> None:
        """A job ended."""
        job = self.simulated[index]
        excess = now - job.at - job.zero_load_s
        self.excess[index] = excess
        self.late += not _in_time(excess, job.zero_load_s)

    def close(self, now: float, devices: Iterable[Any]) -> None:
        """After the run."""
        self.ended_at = now
        self.busy_prefill_s = sum(device.busy_prefill for device in devices)
        self.busy_decode_s = sum(device.busy_decode for device in devices)

    @property
    def jobs(self) -> int:
        return len(self.simulated)

    @property
    def complete(self) -> bool:
        """Whether every job was simulated to its end."""
        return math.inf not in self.excess

    @property
    def in_time(self) -> int:
        """Jobs that took at most the SLO longer than alone."""
        return sum(self.in_time_by_job())

    def in_time_by_job(self) -> list[bool]:
        """Whether each job was in time, in the order of `simulated`."""
        return [_in_time(excess, job.zero_load_s) for excess, job in zip(self.excess, self.simulated, strict=True)]

    @property
    def goodput(self) -> float:
        """Jobs a second that were in time."""
        return self.in_time / self.duration_s

    def first_quantile(self, share: float, since: float = 0.0) -> float:
        """Seconds until its first token that `share` of the jobs that arrived from `since` on stay below."""
        return quantile([t for job, t in zip(self.simulated, self.first, strict=True) if job.at >= since], share)

    def summary(self) -> dict[str, float]:
        """Numbers of the run by name; seconds unless the name says otherwise."""
        ttft, tpot = sorted(self.ttft), sorted(self.tpot)
        return {
            "goodput_jobs_s": self.goodput,
            "attainment": self.in_time / max(1, self.jobs),
            "goodput_requests_s": self.requests_in_time / self.duration_s,
            "jobs": float(self.jobs),
            "requests": float(len(ttft)),
            "job_ttft_p50_s": self.first_quantile(0.5),
            "job_ttft_p90_s": self.first_quantile(0.9),
            "job_ttft_p99_s": self.first_quantile(0.99),
            "ttft_p50_s": quantile(ttft, 0.5),
            "ttft_p90_s": quantile(ttft, 0.9),
            "ttft_p99_s": quantile(ttft, 0.99),
            "tpot_p50_s": quantile(tpot, 0.5),
            "tpot_p90_s": quantile(tpot, 0.9),
            "tpot_p99_s": quantile(tpot, 0.99),
            "excess_p90_s": quantile(list(self.excess), 0.9),
            "flips": float(self.flips),
            "retried": float(self.retried),
            "busy_prefill_s": self.busy_prefill_s,
            "busy_decode_s": self.busy_decode_s,
        }

    def timeline(self) -> list[dict[str, Any]]:
        """The samples, ready for JSON."""
        return [asdict(sample) for sample in self.samples]


def _in_time(excess_s: float, alone_s: float) -> bool:
    return excess_s <= EXCESS_SLO_S + EXCESS_SLO_SHARE * alone_s


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not exceed; NaN if there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
