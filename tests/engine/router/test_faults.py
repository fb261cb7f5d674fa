"""Instances that die, hang, fail or return: requests end right or with a typed error, in bounded time."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.engine.router.cluster import Cluster, body, wait_until
from tests.engine.router.streams import expected, stream


def test_a_prefill_that_dies_is_done_by_another() -> None:
    with Cluster() as cluster:
        bad = cluster.add("p0", "prefill", fault={"die_at": "prefill"})
        cluster.add("d0", "decode")
        cluster.ready()
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(cluster.chat, "survive")
            wait_until(lambda: not bad.is_running(), "the instance died")
            cluster.add("p1", "prefill")
            assert answer.result().json()["choices"][0]["token_ids"] == expected("survive", 8)
        cluster.nothing_held()
        assert cluster.metrics()['pagemill_router_retries_total{code="instance_lost",stage="prefill"}'] >= 1


def test_a_decode_that_dies_before_its_first_token_costs_no_second_prefill() -> None:
    with Cluster() as cluster:
        prefill = cluster.add("p0", "prefill")
        cluster.add("d0", "decode", fault={"die_at": "pull"})
        cluster.add("d1", "decode", fault={"die_at": "pull"})
        cluster.add("d2", "decode")
        cluster.ready()
        for number in range(6):
            answer = cluster.chat(f"again {number}").json()
            assert answer["choices"][0]["token_ids"] == expected(f"again {number}", 8)
        assert len(prefill.seen()["requests"]) == 6
        cluster.nothing_held()


def test_a_greedy_stream_goes_on_where_its_instance_died() -> None:
    with Cluster() as cluster:
        cluster.add("p0", "prefill")
        bad = cluster.add("d0", "decode", fault={"die_at": "token", "after": 5})
        cluster.ready()
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(stream, cluster, "go on", max_tokens=20)
            wait_until(lambda: not bad.is_running(), "the instance died")
            cluster.add("d1", "decode")
            tokens, text, error = answer.result()
        assert error is None
        assert tokens == expected("go on", 20)
        assert len(text.split()) == 20
        cluster.nothing_held()


def test_a_random_stream_that_is_cut_off_says_so() -> None:
    with Cluster() as cluster:
        cluster.add("p0", "prefill")
        cluster.add("d0", "decode", fault={"die_at": "token", "after": 5})
        cluster.add("d1", "decode", fault={"die_at": "token", "after": 5})
        cluster.ready()
        tokens, _, error = stream(cluster, "dice", max_tokens=20, temperature=1.0)
        assert 1 <= len(tokens) < 20
        assert error == "answer_interrupted"
        cluster.nothing_held()


def test_a_random_answer_that_nobody_has_seen_is_begun_anew() -> None:
    with Cluster() as cluster:
        cluster.add("p0", "prefill")
        cluster.add("d0", "decode", fault={"die_at": "token", "after": 5})
        cluster.ready()
        cluster.add("d1", "decode")
        cluster.ready()
        answers = [cluster.chat("dice", max_tokens=20, temperature=1.0).json() for _ in range(3)]
        assert [len(answer["choices"][0]["token_ids"]) for answer in answers] == [20, 20, 20]
        cluster.nothing_held()


def test_an_instance_that_hangs_is_lost_with_its_lease() -> None:
    with Cluster(lease_s=1) as cluster:
        cluster.add("p0", "prefill")
        hung = cluster.add("d0", "decode", fault={"token_s": 0.05})
        cluster.ready()
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(cluster.chat, "hang", max_tokens=60)
            wait_until(lambda: hung.seen()["running"], "it is decoding")
            hung.child.signal(signal.SIGSTOP)
            cluster.add("d1", "decode")
            began = time.monotonic()
            assert answer.result(30).json()["choices"][0]["token_ids"] == expected("hang", 60)
            assert time.monotonic() - began < 30
        assert "d0" not in {i["status"]["address"]["engine_id"] for i in cluster.state()["instances"]}
        hung.child.signal(signal.SIGCONT)
        cluster.nothing_held()


@pytest.mark.parametrize("where", ["prefill", "pull", "token"])
def test_a_request_that_hangs_ends_at_its_own_deadline(where: str) -> None:
    with Cluster() as cluster:
        cluster.add("p0", "prefill", fault={"hang_at": where})
        cluster.add("d0", "decode", fault={"hang_at": where})
        cluster.ready()
        answer = cluster.chat("stuck", timeout=1.0)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
        cluster.nothing_held()


def test_a_stream_without_tokens_is_taken_elsewhere() -> None:
    with Cluster(stall_s=0.7, pull_deadline_s=0.5) as cluster:
        cluster.add("p0", "prefill")
        cluster.add("d0", "decode", fault={"hang_at": "token", "after": 3})
        cluster.ready()
        cluster.add("d1", "decode", fault={"token_s": 0.01})
        cluster.ready()
        for number in range(3):
            tokens, _, error = stream(cluster, f"stall {number}", max_tokens=10)
            assert (tokens, error) == (expected(f"stall {number}", 10), None)
        cluster.nothing_held()


def test_a_pull_that_fails_is_computed_again_and_counted() -> None:
    with Cluster() as cluster:
        cluster.add("p0", "prefill")
        cluster.add("d0", "decode", fault={"fail_pull": True})
        cluster.ready()
        assert cluster.chat("fall back").json()["choices"][0]["token_ids"] == expected("fall back", 8)
        assert cluster.metrics()["pagemill_router_fallbacks_total"] == 1
        cluster.nothing_held()


def test_a_failure_that_may_pass_is_tried_again() -> None:
    with Cluster() as cluster:
        cluster.add("h0", "hybrid", fault={"fail_at": "generate", "times": 2})
        cluster.ready()
        assert cluster.chat("patience").json()["choices"][0]["token_ids"] == expected("patience", 8)


def test_a_failure_that_stays_is_a_typed_error() -> None:
    with Cluster() as cluster:
        cluster.add("h0", "hybrid", fault={"fail_at": "generate"})
        cluster.ready()
        answer = cluster.chat("no patience")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "out_of_memory")
        assert answer.json()["error"]["retryable"] is True


def test_without_instances_a_request_ends_soon() -> None:
    with Cluster(instance_wait_s=0.5) as cluster:
        answer = cluster.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_instance")
        only = cluster.add("h0", "hybrid")
        cluster.ready()
        only.kill()
        answer = cluster.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_instance")
        assert httpx.get(f"{cluster.url}/health").status_code == 503


def test_a_request_waits_for_an_instance_that_is_started_again() -> None:
    with Cluster() as cluster:
        only = cluster.add("h0", "hybrid", fault={"token_s": 0.05})
        cluster.ready()
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(cluster.chat, "wait", max_tokens=30)
            wait_until(lambda: only.seen()["running"], "it is generating")
            only.kill()
            cluster.replace(only)
            assert answer.result().json()["choices"][0]["token_ids"] == expected("wait", 30)


def test_a_new_incarnation_ends_what_the_old_one_had() -> None:
    with Cluster() as cluster:
        old = cluster.add("h0", "hybrid", fault={"hang_at": "token"})
        cluster.ready()
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(cluster.chat, "epoch")
            wait_until(lambda: old.seen()["running"], "it is generating")
            new = cluster.add("h0", "hybrid", epoch=2)
            assert answer.result().json()["choices"][0]["token_ids"] == expected("epoch", 8)
            assert len(new.seen()["requests"]) == 1
        state = cluster.state()["instances"]
        assert [i["status"]["address"]["epoch"] for i in state] == [2]


@pytest.mark.parametrize("where", ["prefill", "pull", "token"])
def test_a_client_that_leaves_frees_both_sides(where: str) -> None:
    with Cluster() as cluster:
        prefill = cluster.add("p0", "prefill", fault={"hang_at": where})
        decode = cluster.add("d0", "decode", fault={"hang_at": where})
        cluster.ready()
        on = prefill if where == "prefill" else decode
        for streamed in (False, True):
            with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.6) as client:
                client.post(f"{cluster.url}/v1/chat/completions", json=body("leave", stream=streamed))
            name = on.seen()["requests"][-1]["request_id"]
            wait_until(lambda name=name: name in on.seen()["aborted"], "the instance was told")
        cluster.nothing_held()
        assert cluster.metrics()["pagemill_router_aborted_total"] == 2


def test_a_client_that_leaves_the_queue_leaves_nothing() -> None:
    with Cluster() as cluster:
        only = cluster.add("h0", "hybrid", max_batch_size=1, fault={"token_s": 0.02})
        cluster.ready()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(cluster.chat, "first", max_tokens=60)
            wait_until(lambda: only.seen()["running"], "the first is running")
            with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.4) as client:
                client.post(f"{cluster.url}/v1/chat/completions", json=body("second"))
            assert first.result().status_code == 200
        cluster.nothing_held()
        assert len(only.seen()["requests"]) == 1
