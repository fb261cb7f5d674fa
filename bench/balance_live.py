"""`pagemill bench balance-live`: the balancer on real instances, against each fixed split, and against its simulator.

Four instances of a small random checkpoint, each held to a share of one core, so that they are devices of their own
although they share a machine. Their costs are measured first; from them follow the answers' lengths and the rates:
prose, then tables, then prose, at the same share of what the best split carries in each. Arrivals are open loop, the
same for every policy. A request is in time as in simulation (`engine/balancer/simulator/outcome.py`); its own
zero-load path is measured. Answers that are not complete GRACE_S after the last arrival are late whatever comes, and
are given up.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.figures import Report, at_least, at_most
from engine.balancer.costs import Costs
from engine.balancer.fit import fit
from engine.balancer.load import load_of
from engine.balancer.simulator.cluster import Cluster
from engine.balancer.simulator.jobs import Job, job, request
from engine.balancer.simulator.outcome import EXCESS_SLO_S, EXCESS_SLO_SHARE, Outcome, quantile
from engine.balancer.simulator.policies import Fixed, ours
from engine.balancer.simulator.spec import ClusterSpec, Policy
from engine.role import Role
from engine.router.calibrate import Effort
from engine.router.calibrate import measure as calibrate
from engine.router.local_stack import LocalStack
from engine.router.measure import Streamed, streamed

INSTANCES = 4
SHARE = 0.1
PROMPT, SLOTS = 512, 24
OUTPUTS = 12
"""Times as many tokens in an answer of tables as in one of prose."""

PROSE_WORK = 4.0
"""Prefill work of prose over its decode work: at three instances to one, decode has some slots to spare for requests
that are still prefilled. Tables are a third, OUTPUTS being what it is: one instance to three."""

WINDOW = 2
"""Prompts that are with a prefill instance: the next one is there when one is done."""

PROMPTS = 8
GRACE_S = 20.0
GOODPUT_REACH, FLIP_REACH_S, AGREE = 1.15, 2.0, 0.2

INSTANCE: dict[str, Any] = {
    "session_len": 1024,
    "kv_blocks": 1400,
    "block_size": 16,
    "max_batch_size": SLOTS,
    # One prompt a pass, as the cost model has it.
    "max_prefill_tokens": PROMPT,
    "prefix_caching": False,
    "lease_s": 60.0,
}
ROUTER: dict[str, Any] = {"queue_limit": 100_000, "lease_s": 10.0, "prefill_window_tokens": WINDOW * PROMPT}


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind: tokens of the answer, and those that arrive in a second."""

    name: str
    output: int
    rate: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: seconds from the beginning, its kind, and which prompt."""

    at: float
    kind: Kind
    prompt: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Prose, tables, prose, for `phase_s` seconds each."""

    prose: Kind
    tables: Kind
    phase_s: float
    arrivals: tuple[Arrival, ...]

    @property
    def seconds(self) -> float:
        return 3 * self.phase_s


@dataclass(slots=True)
class Run:
    """What one policy came to.

    Attributes:
        ends: "ok", "given up", or the code of an error, for each arrival.
        first_s: seconds until the first token; of those given up before, until then.
        excess_s: seconds longer than alone; of those given up, until then.
        in_time: how many.
        wrong: answers whose tokens are not those of the unloaded engine.
        flips, decisions: changes of role and their reasons, as the router tells them.
        roles: each second: seconds from the beginning, instances that prefill, that decode, requests that wait.
        costs: each second: the pace by which the router corrects the costs.
        started_late_s: of the client, the 99th percentile.
    """

    ends: list[str] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    excess_s: list[float] = field(default_factory=list)
    in_time: int = 0
    wrong: int = 0
    flips: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    roles: list[tuple[float, int, int, int]] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)
    started_late_s: float = 0.0

    @property
    def lost(self) -> int:
        return sum(end not in ("ok", "given up") for end in self.ends)


def measure(phase_s: float = 30.0, share: float = SHARE, load: float = 0.78, seed: int = 0, rounds: int = 6) -> Report:
    """Start the instances, calibrate, run every policy, simulate the same.

    Args:
        phase_s: seconds of each of the three phases.
        share: of one core, for each instance.
        load: of what the best split for each phase carries.
        seed: of the arrivals.
        rounds: repetitions of the calibration.
    """
    with tempfile.TemporaryDirectory(prefix="pagemill-bench-") as folder:
        return _Bench(Path(folder), phase_s, share, load, seed, rounds).run()


def workload_of(costs: Costs, phase_s: float, load: float, seed: int) -> Workload:
    """Lengths and rates from measured costs, so that no fixed split carries both phases.

    Prose is carried best by three prefill instances to one that decodes, tables the other way round.
    """
    prefill = costs.prefill_s(load_of(0, PROMPT, 0))
    prose = max(2, round(_length(costs, prefill / PROSE_WORK)))
    kinds = [
        Kind(name, output, load * _carried(costs, output))
        for name, output in (("prose", prose), ("tables", OUTPUTS * prose))
    ]
    rng = random.Random(seed)
    arrivals: list[Arrival] = []
    at = 0.0
    while True:
        kind = kinds[1] if phase_s <= at < 2 * phase_s else kinds[0]
        at += rng.expovariate(kind.rate)
        if at >= 3 * phase_s:
            return Workload(kinds[0], kinds[1], phase_s, tuple(arrivals))
        arrivals.append(Arrival(at, kinds[1] if phase_s <= at < 2 * phase_s else kinds[0], rng.randrange(PROMPTS)))


def carried_by(costs: Costs, output: int) -> dict[str, float]:
    """Requests a second that each fixed split carries."""
    prefill, decode = costs.prefill_s(load_of(0, PROMPT, 0)), costs.decode_s(load_of(0, PROMPT, output))
    return {f"{n}:{INSTANCES - n}": min(n / prefill, (INSTANCES - n) / decode) for n in range(1, INSTANCES)}


def _carried(costs: Costs, output: int) -> float:
    return max(carried_by(costs, output).values())


def _length(costs: Costs, seconds: float) -> float:
    """Tokens of an answer that asks for so many seconds of decoding."""
    return next((n for n in range(1, 4096) if costs.decode_s(load_of(0, PROMPT, n)) >= seconds), 4096)


class _Bench:
    def __init__(self, folder: Path, phase_s: float, share: float, load: float, seed: int, rounds: int) -> None:
        self._folder = folder
        self._phase_s, self._share, self._load, self._seed, self._rounds = phase_s, share, load, seed, rounds
        rng = random.Random(1)
        self._prompts = [[rng.randrange(10, 250) for _ in range(PROMPT)] for _ in range(PROMPTS)]

    def run(self) -> Report:
        load_before = os.getloadavg()
        began = time.perf_counter()
        model = self._folder / "tiny"
        _write(model)
        roles = (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE)
        _say(f"starting {INSTANCES} instances at {self._share:g} of one core each")
        with LocalStack(model, roles, ROUTER, self._folder / "logs", cpu_share=self._share, **INSTANCE) as stack:
            stack.ready()
            held = [status["health"]["cpu_share"] for status in stack.statuses()]
            samples = asyncio.run(
                calibrate(stack.url, stack.token, Effort(self._rounds, PROMPT // 2, 2 * PROMPT), _say)
            )
            costs = replace(
                fit(samples, f"measured by this bench, {self._share:g} of one core each"),
                prefill_batch_tokens=PROMPT,
            )
            costs.save(self._folder / "costs.json")
            work = workload_of(costs, self._phase_s, self._load, self._seed)
            _say(
                f"{len(work.arrivals)} requests: prose {work.prose.rate:.1f}/s of {work.prose.output} tokens, "
                f"tables {work.tables.rate:.1f}/s of {work.tables.output}"
            )
            right, alone = asyncio.run(self._unloaded(stack, work))
            runs = {"2:2": self._static(stack, 2, work, right, alone), "ours": self._ours(stack, work, right, alone)}
            for prefill in (3, 1):
                runs[f"{prefill}:{INSTANCES - prefill}"] = self._static(stack, prefill, work, right, alone)
        simulated = {name: _simulated(name, work, costs, alone) for name in runs}
        details = {
            "cpu_share": held,
            "load_average": {"before": load_before, "after": os.getloadavg()},
            "seconds": round(time.perf_counter() - began, 1),
            "phase_s": self._phase_s,
            "load": self._load,
            "seed": self._seed,
            "costs": asdict(costs),
            "kinds": [
                {**asdict(kind), "carried": carried_by(costs, kind.output)} for kind in (work.prose, work.tables)
            ],
            "alone_s": {
                "live": alone,
                "by_costs": {k.name: costs.zero_load_s(0, PROMPT, k.output) for k in (work.prose, work.tables)},
            },
            "policies": {name: _details(run, work) for name, run in runs.items()},
        }
        return _report(runs, simulated, work, details)

    async def _unloaded(self, stack: LocalStack, work: Workload) -> tuple[list[list[int]], dict[str, float]]:
        """The right tokens of every prompt, and the seconds that each kind takes alone."""
        right: list[list[int]] = []
        seconds: dict[str, float] = {}
        async with _client() as client:
            for kind in (work.prose, work.tables):
                took, first = [], []
                for number in range(PROMPTS):
                    answer = await streamed(client, stack.url, self._body(number, kind))
                    if answer.error:
                        raise RuntimeError(f"the unloaded engine failed: {answer.error}")
                    took.append(answer.at[-1] - answer.started)
                    first.append(answer.ttft_s)
                    if kind is work.tables:
                        right.append(answer.tokens)
                seconds[kind.name] = median(took)
                seconds[f"{kind.name}, first token"] = median(first)
        return right, seconds

    def _static(
        self, stack: LocalStack, prefill: int, work: Workload, right: Sequence[Sequence[int]], alone: dict[str, float]
    ) -> Run:
        _say(f"{prefill}:{INSTANCES - prefill}, fixed")
        _become(stack, prefill)
        return asyncio.run(self._serve(stack, work, right, alone))

    def _ours(self, stack: LocalStack, work: Workload, right: Sequence[Sequence[int]], alone: dict[str, float]) -> Run:
        """A second router before the same instances, whose balancer acts."""
        _say("ours, from 2:2")
        wanted = _become(stack, 2)
        urls = [status["address"]["url"] for status in stack.statuses()]
        router = {**ROUTER, "balance": "act", "costs": str(self._folder / "costs.json"), "instances": urls}
        with LocalStack(stack.model, (), router, self._folder / "logs" / "acting", stack.token) as acting:
            _settle(acting, wanted)
            run = asyncio.run(self._serve(acting, work, right, alone))
            acting.at_rest()
        return run

    async def _serve(
        self, stack: LocalStack, work: Workload, right: Sequence[Sequence[int]], alone: dict[str, float]
    ) -> Run:
        began = time.perf_counter() + 0.5
        answers = [Streamed(0.0) for _ in work.arrivals]
        cut = work.seconds + GRACE_S
        run = Run()
        async with _client() as client:

            async def one(arrival: Arrival, answer: Streamed) -> None:
                await asyncio.sleep(began + arrival.at - time.perf_counter())
                await streamed(client, stack.url, self._body(arrival.prompt, arrival.kind), answer)

            watcher = asyncio.create_task(_watch(stack, began, run))
            tasks = [asyncio.create_task(one(*each)) for each in zip(work.arrivals, answers, strict=True)]
            await asyncio.wait(tasks, timeout=began + cut - time.perf_counter())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        await asyncio.to_thread(stack.at_rest, 120.0)
        starts = []
        for arrival, answer in zip(work.arrivals, answers, strict=True):
            due = began + arrival.at
            starts.append(answer.started - due)
            done = answer.finish_reason is not None and answer.error is None
            end = "ok" if done else answer.error or "given up"
            run.ends.append(end)
            longest = cut - arrival.at
            run.first_s.append(answer.at[0] - due if answer.at else longest)
            excess = (answer.at[-1] - due if done else longest) - alone[arrival.kind.name]
            run.excess_s.append(excess)
            run.in_time += done and excess <= EXCESS_SLO_S + EXCESS_SLO_SHARE * alone[arrival.kind.name]
            run.wrong += done and answer.tokens != list(right[arrival.prompt][: arrival.kind.output])
        run.started_late_s = quantile(starts, 0.99)
        return run

    def _body(self, prompt: int, kind: Kind) -> dict[str, Any]:
        return {
            "messages": [],
            "prompt_token_ids": self._prompts[prompt],
            "max_tokens": kind.output,
            "ignore_eos": True,
            "repetition_stop": False,
        }


def _simulated(name: str, work: Workload, costs: Costs, alone: dict[str, float]) -> Outcome:
    """The same requests under the same policy, and in time by the same measured paths `alone`."""
    policy: Policy = ours() if name == "ours" else Fixed(name)
    prefill = INSTANCES // 2 if name == "ours" else int(name[0])
    jobs: list[Job] = []
    for arrival in work.arrivals:
        output = arrival.kind.output
        spec = request(arrival.kind.name, 0, PROMPT, output, costs, most=output)
        one = job(arrival.at, arrival.kind.name, (spec,), (), costs)
        jobs.append(replace(one, zero_load_s=alone[arrival.kind.name]))
    return Cluster(ClusterSpec.alike(INSTANCES), costs, policy, prefill, work.seconds, window=WINDOW).run(jobs)


def _report(runs: dict[str, Run], simulated: dict[str, Outcome], work: Workload, details: dict[str, Any]) -> Report:
    static = max(run.in_time for name, run in runs.items() if name != "ours")
    mine = runs["ours"]
    switches = [flip["switch_s"] for flip in mine.flips if flip["stage"] == "done"]
    figures = [
        at_least("goodput_over_best_static", mine.in_time / max(1, static), "ratio", GOODPUT_REACH),
        at_most("slowest_flip", max(switches, default=None), "seconds", FLIP_REACH_S),
        at_most("lost_requests", sum(run.lost for run in runs.values()), "requests", 0),
        at_most("wrong_answers", sum(run.wrong for run in runs.values()), "requests", 0),
    ]
    agreement = {name: _agreement(run, simulated[name], work) for name, run in runs.items()}
    details["simulated_over_live"] = agreement
    for what in ("ttft_p50", "ttft_p90", "goodput"):
        worst = max(abs(ratios[what] - 1) for ratios in agreement.values())
        figures.append(at_most(f"simulator_off_{what}", worst, "ratio", AGREE))
    failures = [f"{f.name} is {f.value}, to reach {f.reach} {f.unit}" for f in figures if not f.ok]
    return Report("balance-live", tuple(figures), details, tuple(failures))


def _agreement(run: Run, outcome: Outcome, work: Workload) -> dict[str, float]:
    """What the simulator says over what was measured."""
    cut = work.seconds + GRACE_S
    first = [min(seconds, cut - arrival.at) for seconds, arrival in zip(outcome.first, work.arrivals, strict=True)]
    return {
        "ttft_p50": quantile(first, 0.5) / quantile(run.first_s, 0.5),
        "ttft_p90": quantile(first, 0.9) / quantile(run.first_s, 0.9),
        "goodput": outcome.in_time / max(1, run.in_time),
        "simulated_ttft_p50_s": quantile(first, 0.5),
        "simulated_ttft_p90_s": quantile(first, 0.9),
        "simulated_in_time": outcome.in_time,
        "simulated_flips": outcome.flips,
    }


def _details(run: Run, work: Workload) -> dict[str, Any]:
    phases = {"prose": 0.0, "tables": work.phase_s, "prose again": 2 * work.phase_s}
    in_time = {}
    for name, begin in phases.items():
        ok = [
            end == "ok" and excess <= EXCESS_SLO_S
            for arrival, end, excess in zip(work.arrivals, run.ends, run.excess_s, strict=True)
            if begin <= arrival.at < begin + work.phase_s
        ]
        in_time[name] = f"{sum(ok)} of {len(ok)} within {EXCESS_SLO_S:g} s"
    return {
        "requests": len(run.ends),
        "in_time": run.in_time,
        "goodput_requests_s": round(run.in_time / work.seconds, 3),
        "by_phase": in_time,
        "ttft_p50_s": round(quantile(run.first_s, 0.5), 4),
        "ttft_p90_s": round(quantile(run.first_s, 0.9), 4),
        "ends": {end: run.ends.count(end) for end in sorted(set(run.ends))},
        "wrong": run.wrong,
        "client_late_p99_s": round(run.started_late_s, 4),
        "flips": run.flips,
        "decisions": run.decisions,
        "roles_prefill_decode_waiting": run.roles,
        "pace": run.costs[::5],
    }


async def _watch(stack: LocalStack, began: float, run: Run) -> None:
    """Roles and the queue once a second, and what the balancer did."""
    headers = {"Authorization": f"Bearer {stack.token}"}
    async with httpx.AsyncClient(headers=headers, timeout=10, trust_env=False) as client:
        while True:
            state = (await client.get(f"{stack.url}/v1/instances")).json()
            roles = [i["status"]["role"] if i["usable"] else "" for i in state["instances"]]
            at = round(time.perf_counter() - began, 1)
            run.roles.append((at, roles.count("prefill"), roles.count("decode"), state["waiting"]))
            balance = (await client.get(f"{stack.url}/v1/engine/balance")).json()
            run.flips, run.decisions = balance["flips"], balance["decisions"]
            run.costs.append(balance["costs"]["source"].partition("; ")[2])
            await asyncio.sleep(1.0)


def _become(stack: LocalStack, prefill: int) -> dict[str, str]:
    """Give the instances their roles, and wait until the router knows and all pairs have greeted; answers the roles."""
    wanted: dict[str, str] = {}
    # Names begin with the role that an instance had at first: p0, p1, then d0, d1.
    for status in sorted(
        stack.statuses(), key=lambda s: (s["address"]["engine_id"][0] == "d", s["address"]["engine_id"])
    ):
        role = Role.PREFILL if len(wanted) < prefill else Role.DECODE
        wanted[status["address"]["engine_id"]] = role.value
        stack.post(f"{status['address']['url']}/v1/role", {"role": role.value, "epoch": status["address"]["epoch"]})
    _settle(stack, wanted)
    return wanted


def _settle(stack: LocalStack, wanted: dict[str, str], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = stack.state()
        roles = {i["status"]["address"]["engine_id"]: i["status"]["role"] for i in state["instances"] if i["usable"]}
        linked = {(link["source"], link["reader"]) for link in state["links"] if link["transport"]}
        pairs = {(p, d) for p in wanted for d in wanted if (wanted[p], wanted[d]) == ("prefill", "decode")}
        if roles == wanted and linked >= pairs:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the router does not know of the roles {wanted}")


def _client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx.AsyncClient(timeout=None, limits=limits, trust_env=False)


def _write(folder: Path) -> None:
    """In a process of its own: this one stays without torch."""
    import subprocess

    program = (
        "import sys; from pathlib import Path; from engine.random_checkpoint import write_checkpoint; "
        "write_checkpoint(Path(sys.argv[1]), 'qwen2', 'tiny')"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=Path(__file__).parents[1], check=True)


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()
