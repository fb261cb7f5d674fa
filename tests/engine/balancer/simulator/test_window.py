"""Places to decode that are taken before the prefill, as the router takes them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from engine.balancer.costs import Costs
from engine.balancer.simulator.cluster import Cluster
from engine.balancer.simulator.jobs import Job, job, request
from engine.balancer.simulator.policies import Fixed, ours
from engine.balancer.simulator.spec import ClusterSpec, Failure

# 0.1 s of prefill, 10 ms a step, nothing else.
COSTS = Costs(
    prefill_request_s=0.1,
    visual_token_s=0.0,
    text_token_s=0.0,
    attention_s=0.0,
    step_s=0.01,
    step_kv_token_s=0.0,
    step_sequence_s=0.0,
    transfer_latency_s=0.0,
    kv_bytes_per_token=0,
    max_sequences=1,
)


def burst(count: int, output: int, every: float = 0.0) -> list[Job]:
    spec = request("chat", 0, 10, output, COSTS, most=output)
    return [job(n * every, "x", (spec,), (), COSTS) for n in range(count)]


def test_with_one_place_to_decode_the_next_prompt_waits_for_the_answer_before_it() -> None:
    outcome = Cluster(ClusterSpec.alike(2), COSTS, Fixed(), 1, 1.0, window=2).run(burst(5, 51))
    # 0.1 s of prefill and 50 steps of 10 ms, one request after the other.
    assert sorted(outcome.first) == pytest.approx([0.1 + 0.6 * n for n in range(5)])
    assert outcome.ended_at == pytest.approx(5 * 0.6)


def test_without_it_prompts_do_not_wait_and_answers_do() -> None:
    outcome = Cluster(ClusterSpec.alike(2), COSTS, Fixed(), 1, 1.0).run(burst(5, 51))
    assert max(outcome.first) <= 0.5 + 1e-9


def test_prompts_beyond_the_window_wait_for_whoever_is_first_done() -> None:
    many = Costs(**{f: getattr(COSTS, f) for f in COSTS.__slots__} | {"max_sequences": 64})
    outcome = Cluster(ClusterSpec.alike(4), many, Fixed(), 2, 1.0, window=2).run(burst(8, 2))
    assert sorted(outcome.first) == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4])


def test_nothing_is_lost_and_no_place_is_kept_when_instances_die_and_roles_change() -> None:
    rng = random.Random(0)
    slots = Costs(**{f: getattr(COSTS, f) for f in COSTS.__slots__} | {"max_sequences": 4})
    at, jobs = 0.0, []
    for _ in range(400):
        at += rng.expovariate(12.0)
        jobs.append(job(at, "x", (request("chat", 0, 10, rng.choice((2, 80)), slots),), (), slots))
    failures = [Failure(5.0, 0, 3.0), Failure(12.0, 3, 2.0), Failure(20.0, 1, 4.0)]
    cluster = Cluster(ClusterSpec.alike(4), slots, ours(), 2, at, failures=failures, window=2)
    outcome = cluster.run(jobs)
    assert outcome.complete and outcome.retried > 0
    assert [device.running for device in cluster.devices] == [0] * 4
    assert all(later >= earlier for earlier, later in pairwise(s.at for s in outcome.samples))


def test_sequences_that_join_a_running_batch_share_a_step_of_their_own() -> None:
    costs = Costs(
        **{f: getattr(COSTS, f) for f in COSTS.__slots__}
        | {"max_sequences": 64, "prefill_request_s": 1e-6, "join_steps": 3}
    )
    spec = request("chat", 0, 10, 101, costs)

    def last(*arrivals: float) -> float:
        jobs = [job(at, "x", (spec,), (), costs) for at in arrivals]
        return Cluster(ClusterSpec.alike(2), costs, Fixed(), 1, 2.0).run(jobs).ended_at - arrivals[-1]

    # A hundred steps of 10 ms, and one more for each time that somebody joined: not alone, and not together.
    assert last(0.0) == pytest.approx(1.0, abs=1e-4)
    assert last(0.0, 0.5) == pytest.approx(1.01, abs=1e-4)
    assert last(0.0, 0.5, 0.501, 0.502) == pytest.approx(1.01, abs=2e-2)
    assert last(0.0, 0.3, 0.5) == pytest.approx(1.01, abs=1e-4)
