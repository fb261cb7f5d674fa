"""The simulator against what queueing theory says of the same systems in closed form."""

from __future__ import annotations

import math
import random
from statistics import mean

import pytest

from engine.balancer.costs import Costs
from engine.balancer.simulator.cluster import Cluster
from engine.balancer.simulator.jobs import Job, job, request
from engine.balancer.simulator.mix import pages, parse_mix
from engine.balancer.simulator.outcome import Outcome
from engine.balancer.simulator.policies import Fixed, MixedPool, ours
from engine.balancer.simulator.spec import ClusterSpec, Failure

# One request at a time in prefill, text tokens of 1 ms, nothing else: a single server of known service time.
SERVER = Costs(
    prefill_request_s=0.0,
    visual_token_s=0.0,
    text_token_s=1e-3,
    attention_s=0.0,
    prefill_batch_tokens=1,
    transfer_latency_s=0.0,
)


def arrivals(rate: float, count: int, tokens: list[int], output: int, costs: Costs, seed: int = 1) -> list[Job]:
    rng, at, jobs = random.Random(seed), 0.0, []
    for n in range(count):
        at += rng.expovariate(rate)
        jobs.append(job(at, "x", (request("chat", 0, tokens[n % len(tokens)], output, costs),), (), costs))
    return jobs


def simulate(jobs: list[Job], costs: Costs, instances: int = 2, prefill: int = 1) -> Outcome:
    return Cluster(ClusterSpec.alike(instances), costs, Fixed(), prefill, jobs[-1].at).run(jobs)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_for_prefill_is_that_of_an_m_d_1_queue(load: float) -> None:
    """Pollaczek-Khinchine with constant service time s: s + rho * s / (2 * (1 - rho))."""
    service = 0.1
    outcome = simulate(arrivals(load / service, 20_000, [100], 1, SERVER), SERVER)
    expected = service + load * service / (2 * (1 - load))
    assert mean(outcome.ttft) == pytest.approx(expected, rel=0.06)


def test_waiting_for_prefill_is_that_of_an_m_g_1_queue() -> None:
    """Two service times, half each, first come first served: W = rate * E[s^2] / (2 * (1 - rho))."""
    rng = random.Random(5)
    tokens = [rng.choice([50, 250]) for _ in range(20_000)]
    rate = 0.6 / 0.15
    jobs = arrivals(rate, 20_000, tokens, 1, SERVER)
    from engine.balancer import routing

    patience, routing.PATIENCE = routing.PATIENCE, 0.0
    try:
        outcome = simulate(jobs, SERVER)
    finally:
        routing.PATIENCE = patience
    second_moment = (0.05**2 + 0.25**2) / 2
    expected = 0.15 + rate * second_moment / (2 * (1 - 0.6))
    assert mean(outcome.ttft) == pytest.approx(expected, rel=0.08)


def test_several_prefill_instances_wait_as_m_d_c() -> None:
    """Between M/M/c halved (the usual approximation of M/D/c) and M/M/c itself; far below one server's wait."""
    service, servers, load = 0.1, 4, 0.8
    outcome = simulate(arrivals(load * servers / service, 20_000, [100], 1, SERVER), SERVER, 5, servers)
    offered = load * servers
    blocked = offered**servers / math.factorial(servers) / (1 - load)
    probability = blocked / (sum(offered**k / math.factorial(k) for k in range(servers)) + blocked)
    wait = probability * service / (servers * (1 - load)) / 2
    assert mean(outcome.ttft) - service == pytest.approx(wait, rel=0.15)


def test_little_s_law_holds_in_the_decode_pool() -> None:
    """Sequences in decode on average = arrival rate * time in decode."""
    costs = Costs()
    jobs = arrivals(40.0, 6_000, [200], 100, costs)
    outcome = simulate(jobs, costs, 3, 1)
    running = mean(s.running for s in outcome.samples[5:])
    in_decode = mean(tpot * 99 for tpot in outcome.tpot)
    assert running == pytest.approx(40.0 * in_decode, rel=0.05)


def test_a_sequence_alone_takes_exactly_its_zero_load_path() -> None:
    costs = Costs()
    jobs = [job(100.0 * n, "x", (request("chat", 0, 500, 400, costs),), (), costs) for n in range(1, 5)]
    outcome = simulate(jobs, costs)
    assert max(abs(excess) for excess in outcome.excess) < 0.005


def test_a_full_batch_generates_what_the_cost_model_says() -> None:
    costs = Costs(max_sequences=32)
    jobs = [job(0.0, "x", (request("chat", 0, 100, 1000, costs),), (), costs) for _ in range(64)]
    outcome = simulate(jobs, costs)
    expected = 2 * 1000 * costs.step(32, 32 * 600)
    assert outcome.ended_at == pytest.approx(expected, rel=0.03)


def test_the_steps_add_up_one_by_one() -> None:
    """The closed form against a loop over single steps."""
    costs = Costs(step_kv_token_s=1e-6)
    jobs = [job(0.0, "x", (request("chat", 0, 10, output, costs),), (), costs) for output in (50, 120, 200)]
    outcome = simulate(jobs, costs)
    sequences, seconds, step = [50, 120, 200], 0.0, 1
    while any(output > step for output in sequences):
        alive = [output for output in sequences if output > step]
        seconds += costs.step(len(alive), len(alive) * (10 + step))
        step += 1
    assert outcome.ended_at == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize("policy", [Fixed, ours, MixedPool])
def test_every_request_ends_once_whatever_the_policy(policy: type) -> None:
    costs = Costs()
    mix = parse_mix("prose/10,tables/10")
    jobs = pages(mix, 4, costs, 3)
    outcome = Cluster(ClusterSpec.alike(4), costs, policy(), 2, mix.seconds).run(jobs)
    assert outcome.complete
    assert len(outcome.ttft) == sum(1 + len(j.then) for j in jobs)


def test_no_request_is_lost_when_instances_die_and_return() -> None:
    costs = Costs()
    mix = parse_mix("prose/15,tables/15@0.5")
    jobs = pages(mix, 4, costs, 4)
    failures = [Failure(5.0, 0, 4.0), Failure(12.0, 3, 6.0), Failure(22.0, 2, 3.0)]
    outcome = Cluster(ClusterSpec.alike(4), costs, ours(), 2, mix.seconds, failures).run(jobs)
    assert outcome.complete
    assert len(outcome.ttft) == sum(1 + len(j.then) for j in jobs)
    assert outcome.retried > 0


def test_hybrids_share_their_time_between_both_kinds_of_work() -> None:
    """Decoding slows down while prompts are prefilled on the same instance, but nothing waits for a transfer."""
    costs = Costs()
    jobs = arrivals(20.0, 1500, [1500], 150, costs)
    split = simulate(jobs, costs, 2, 1)
    together = Cluster(ClusterSpec.alike(2), costs, Fixed("hybrid"), 0, jobs[-1].at, hybrid=True).run(jobs)
    assert mean(together.tpot) > mean(split.tpot)
    assert together.complete
