"""Rows of `pagemill bench engine` for the whole engine: router and instances as processes on this CPU.

Random weights: "small" (121 million parameters) where times are compared, "tiny" where instances are killed. Both
sides of a comparison run in the same call. Times are the client's, from sending the request to reading the token.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from bench.figures import Figure, Report, at_least, at_most
from engine.role import Role
from engine.router.local_stack import LocalStack
from engine.router.measure import Streamed, streamed

SPLIT = (Role.PREFILL, Role.DECODE)
PARTS = ("ttft", "gaps", "flip", "kills")
START_S = 120.0
REACH = {"ttft": 1.1, "gap": 0.5, "flip": 1.0}
CHUNK, WHOLE = 128, 8192
"""Tokens of one prefill step: chunked, and more than any prompt here."""


@dataclass(slots=True)
class _Found:
    figures: list[Figure] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


def measure(requests: int = 500, only: Sequence[str] = PARTS) -> Report:
    """Start stacks one after the other and measure.

    Args:
        requests: sent while instances are killed.
        only: some of PARTS.
    """
    found = _Found()
    with tempfile.TemporaryDirectory(prefix="pagemill-bench-") as folder:
        small, tiny = Path(folder) / "small", Path(folder) / "tiny"
        if {"ttft", "gaps", "flip"} & set(only):
            _write(small, "qwen2", "small")
        if "ttft" in only or "flip" in only:
            _ttft_and_flip(small, found, only)
        if "gaps" in only:
            _gaps(small, found)
        if "kills" in only:
            _write(tiny, "qwen2-vl", "tiny")
            _kills(tiny, requests, found)
    failures = [f"{f.name} is {f.value}, to reach {f.reach} {f.unit}" for f in found.figures if not f.ok]
    return Report("engine-stack", tuple(found.figures), found.details, tuple(failures))


def _write(folder: Path, kind: str, size: str) -> None:
    import subprocess
    import sys

    program = (
        "import sys; from pathlib import Path; from engine.random_checkpoint import write_checkpoint; "
        "write_checkpoint(Path(sys.argv[1]), sys.argv[2], sys.argv[3])"
    )
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", program, str(folder), kind, size], cwd=root, check=True)


# Time to first token, and a change of role.


def _ttft_and_flip(model: Path, found: _Found, only: Sequence[str]) -> None:
    given: dict[str, Any] = {"session_len": 2048, "kv_blocks": 256, "block_size": 16, "prefix_caching": False}
    with LocalStack(model, SPLIT, **given) as split, LocalStack(model, [Role.HYBRID], **given) as single:
        split.ready()
        single.ready()
        if "ttft" in only:
            times = asyncio.run(_alternate(split.url, single.url, 12))
            ratio = median(times["split"]) / median(times["single"])
            found.figures.append(at_most("ttft_split_against_single", ratio, "ratio", REACH["ttft"]))
            found.details["ttft_s"] = {
                name: {"median": round(median(seconds), 4), "all": [round(s, 4) for s in seconds]}
                for name, seconds in times.items()
            }
        if "flip" in only:
            _flip(split, found)


async def _alternate(split: str, single: str, rounds: int) -> dict[str, list[float]]:
    """One request at a time, by turns, so that whatever else the machine does hits both alike."""
    times: dict[str, list[float]] = {"split": [], "single": []}
    async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
        for round_ in range(-2, rounds):
            for name, url in (("split", split), ("single", single)):
                prompt = f"{round_} {name} " + "a page of words " * 16
                answer = await streamed(client, url, _body(prompt, 4))
                if round_ >= 0:
                    times[name].append(answer.ttft_s)
    return times


def _flip(stack: LocalStack, found: _Found) -> None:
    seconds = []
    for role in (Role.HYBRID, Role.DECODE, Role.HYBRID, Role.DECODE):
        status = next(s for s in stack.statuses() if s["address"]["engine_id"] == "d0")
        url, epoch = status["address"]["url"], status["address"]["epoch"]
        began = time.perf_counter()
        answer = stack.post(f"{url}/v1/role", {"role": role.value, "epoch": epoch})
        seconds.append(time.perf_counter() - began)
        assert answer["role"] == role.value
    loads = [status["counters"]["weights_loaded_total"] for status in stack.statuses()]
    found.figures.append(at_most("role_flip_idle", max(seconds), "seconds", REACH["flip"]))
    found.figures.append(at_most("weights_loaded", int(max(loads)), "times", 1))
    found.details["role_flip_s"] = [round(s, 4) for s in seconds]


# Gaps between tokens while long prompts arrive.


def _gaps(model: Path, found: _Found) -> None:
    cores = sorted(os.sched_getaffinity(0))
    for chunked in (False, True):
        name = "chunked" if chunked else "whole"
        p99: dict[str, float | None] = {}
        for pool, roles in (("split", SPLIT), ("hybrid", (Role.HYBRID, Role.HYBRID))):
            p99[pool] = None
            if len(cores) >= 2:
                gaps = _gaps_of(model, roles, CHUNK if chunked else WHOLE, cores[:2])
                p99[pool] = _quantile(gaps, 0.99)
                found.details[f"gaps_{name}_{pool}_s"] = {
                    "p50": round(_quantile(gaps, 0.5), 4),
                    "p99": round(_quantile(gaps, 0.99), 4),
                    "longest": round(max(gaps), 4),
                    "tokens": len(gaps),
                }
        split, hybrid = p99["split"], p99["hybrid"]
        ratio = split / hybrid if split is not None and hybrid else None
        found.figures.append(at_most(f"p99_gap_{name}_prefill", ratio, "ratio", REACH["gap"]))


def _gaps_of(model: Path, roles: Sequence[Role], step: int, cores: Sequence[int]) -> list[float]:
    """Seconds between pieces of running answers while prompts are computed."""
    given: dict[str, Any] = {"session_len": 2048, "kv_blocks": 600, "block_size": 16, "max_prefill_tokens": step}
    with LocalStack(model, roles, prefix_caching=False, max_batch_size=8, **given) as stack:
        stack.ready()
        assert stack.supervisor
        for one, core in zip(stack.supervisor.instances, cores, strict=True):
            assert one.pid
            process = psutil.Process(one.pid)
            for thread in process.threads():
                os.sched_setaffinity(thread.id, [core])
            process.cpu_affinity([core])
        return asyncio.run(_run_gaps(stack.url))


async def _run_gaps(url: str, running: int = 4, prompts: int = 8, pause_s: float = 1.5) -> list[float]:
    async with httpx.AsyncClient(timeout=300, trust_env=False) as client:
        answers = [Streamed(0.0) for _ in range(running)]
        tasks = [
            asyncio.create_task(streamed(client, url, _body(f"running {n}", 1500), answer))
            for n, answer in enumerate(answers)
        ]
        async with asyncio.timeout(START_S):
            while not all(len(answer.at) >= 8 for answer in answers):
                for task in tasks:
                    if task.done():
                        raise RuntimeError(f"an answer ended too soon: {task.result().error}")
                await asyncio.sleep(0.05)
        began = time.perf_counter()
        long = []
        for n in range(prompts):
            prompt = f"{n} " + "a long prompt of many words " * 22
            long.append(asyncio.create_task(streamed(client, url, _body(prompt, 2))))
            await asyncio.sleep(pause_s)
        await asyncio.gather(*long)
        ended = time.perf_counter()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    gaps = []
    for answer in answers:
        # A gap that the window's end cut short counts for as long as it lasted.
        at = [*(t for t in answer.at if t <= ended), ended]
        gaps += [later - earlier for earlier, later in itertools.pairwise(at) if later >= began]
    return gaps


# Killing instances.

PROMPTS, CLIENTS, DEADLINE_S = 20, 12, 120.0
TYPED = {"instance_lost", "no_instance", "deadline_exceeded", "queue_full", "answer_interrupted"}


def _kills(model: Path, requests: int, found: _Found) -> None:
    roles = (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE)
    given: dict[str, Any] = {"session_len": 1024, "kv_blocks": 300, "block_size": 16, "max_batch_size": 8}
    with LocalStack(model, roles, {"lease_s": 5.0}, lease_s=10.0, **given) as stack:
        stack.ready()
        right = asyncio.run(_undisturbed(stack.url))
        over = asyncio.Event()
        ends, kills, slowest = asyncio.run(_while_killing(stack, right, requests, over))
        stack.ready()
        held = stack.at_rest()
        metrics = stack.metrics()
    wrong = sum(end == "wrong" for end in ends)
    untyped = sum(end not in TYPED and end not in ("ok", "wrong") for end in ends)
    found.figures += [
        at_least("requests_under_kills", len(ends), "requests", requests),
        at_most("wrong_answers_under_kills", wrong, "requests", 0),
        at_most("untyped_ends_under_kills", untyped, "requests", 0),
        at_most("slowest_end_under_kills", slowest, "seconds", DEADLINE_S + 5),
        at_most("blocks_held_after_kills", sum(held.values()), "blocks", 0),
    ]
    found.details["kills"] = {
        "kills": kills,
        "ends": {end: ends.count(end) for end in sorted(set(ends))},
        "fallbacks": metrics.get("pagemill_router_fallbacks_total"),
        "retries": {k: v for k, v in metrics.items() if k.startswith("pagemill_router_retries_total")},
    }


async def _undisturbed(url: str) -> dict[str, list[int]]:
    async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
        return {prompt: (await streamed(client, url, _body(prompt, 24))).tokens for prompt in _prompts()}


async def _while_killing(
    stack: LocalStack, right: dict[str, list[int]], requests: int, over: asyncio.Event
) -> tuple[list[str], dict[str, int], float]:
    kills: dict[str, int] = {}
    killer = asyncio.create_task(_kill(stack, kills, over))
    left = iter(range(requests))
    ends: list[str] = []
    slowest = 0.0
    prompts = _prompts()

    async def client_() -> None:
        nonlocal slowest
        async with httpx.AsyncClient(timeout=DEADLINE_S + 30, trust_env=False) as client:
            for number in left:
                prompt = prompts[number % PROMPTS]
                answer = await streamed(client, stack.url, _body(prompt, 24, timeout=DEADLINE_S))
                slowest = max(slowest, time.perf_counter() - answer.started)
                ends.append(answer.error or ("ok" if answer.tokens == right[prompt] else "wrong"))

    await asyncio.gather(*(client_() for _ in range(CLIENTS)))
    over.set()
    await killer
    return ends, kills, slowest


async def _kill(stack: LocalStack, kills: dict[str, int], over: asyncio.Event) -> None:
    """One instance that serves, of either role, every few seconds. The supervisor starts it again after its pause."""
    seed = random.Random(3)
    assert stack.supervisor
    while not over.is_set():
        try:
            async with asyncio.timeout(seed.uniform(2.0, 8.0)):
                await over.wait()
        except TimeoutError:
            state = await asyncio.to_thread(stack.state)
            serving = {i["status"]["address"]["engine_id"] for i in state["instances"] if i["usable"]}
            running = [one for one in stack.supervisor.instances if one.settings.engine_id in serving and one.pid]
            if len(running) >= 2:
                victim = seed.choice(running)
                assert victim.pid
                os.kill(victim.pid, signal.SIGKILL)
                role = victim.settings.role.value
                kills[role] = kills.get(role, 0) + 1


def _prompts() -> list[str]:
    return [f"Prompt {n}: " + "some words of it " * (n % 7) for n in range(PROMPTS)]


def _body(prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "repetition_stop": False,
        **more,
    }


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
