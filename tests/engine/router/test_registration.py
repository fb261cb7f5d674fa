"""Who may register, who may ask, and what is told of it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.engine.router.cluster import Cluster, body, wait_until
from tests.engine.router.instances import status


def post(cluster: Cluster, url: str = "http://127.0.0.1:9", token: str = "", epoch: int = 1) -> httpx.Response:
    one = status("x", epoch=epoch)
    one = one.model_copy(update={"address": one.address.model_copy(update={"url": url})})
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.post(f"{cluster.url}/v1/instances", content=one.model_dump_json(), headers=headers)


def test_with_a_token_only_who_knows_it_registers_and_asks() -> None:
    with Cluster(token="secret") as cluster:
        assert post(cluster).status_code == 401
        assert post(cluster, token="wrong").status_code == 401
        assert httpx.get(f"{cluster.url}/v1/instances").status_code == 401
        assert cluster.state()["instances"] == []
        cluster.add("p0", "prefill")
        cluster.add("d0", "decode")
        assert cluster.ready().chat().status_code == 200


def test_without_a_token_only_this_machine_is_an_address() -> None:
    with Cluster() as cluster:
        assert post(cluster, "http://10.0.0.1:80").status_code == 403
        assert post(cluster, "http://example.com").status_code == 403
        assert post(cluster, "file:///etc/passwd").status_code == 400
        assert cluster.state()["instances"] == []
        content = status("x").model_dump_json()
        page = {"Origin": "http://example.com", "Content-Type": "text/plain"}
        assert httpx.post(f"{cluster.url}/v1/instances", content=content, headers=page).status_code == 403
        assert cluster.state()["instances"] == []
        assert post(cluster).json() == {"lease_s": 10.0}


def test_an_older_incarnation_is_refused() -> None:
    with Cluster() as cluster:
        assert post(cluster, epoch=5).status_code == 200
        answer = post(cluster, epoch=4)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "stale_epoch")


def test_nonsense_is_no_instance() -> None:
    with Cluster() as cluster:
        for content in (b"{}", b"[[", json.dumps({"address": 1}).encode(), b"x" * (2 << 20)):
            answer = httpx.post(f"{cluster.url}/v1/instances", content=content)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_a_lease_that_is_not_renewed_ends() -> None:
    with Cluster(lease_s=0.5) as cluster:
        only = cluster.add("h0", "hybrid")
        cluster.ready()
        only.tell(silent=True)
        wait_until(lambda: not cluster.state()["instances"], "the lease ended")
        only.tell()
        cluster.ready()


def test_instances_that_do_not_register_are_asked() -> None:
    with Cluster() as other:
        quiet = other.add("h0", "hybrid")
        quiet.tell(silent=True)
        with Cluster(instances=[quiet.url]) as cluster:
            wait_until(lambda: cluster.state()["instances"], "it was found")
            assert cluster.chat().status_code == 200


def test_users_need_the_key_if_there_is_one() -> None:
    with Cluster(api_key="k") as cluster:
        cluster.add("h0", "hybrid")
        cluster.ready()
        assert cluster.chat().status_code == 401
        assert httpx.get(f"{cluster.url}/v1/models").status_code == 401
        headers = {"Authorization": "Bearer k"}
        assert httpx.post(f"{cluster.url}/v1/chat/completions", json=body(), headers=headers).status_code == 200
        assert httpx.get(f"{cluster.url}/health").status_code == 200


def test_too_little_bandwidth_is_measured_used_and_told() -> None:
    with Cluster() as cluster:
        cluster.add("p0", "prefill")
        cluster.add("d0", "decode", fault={"bandwidth": 10.0})
        cluster.ready()
        # The first one is moved, and judged by; the judgement comes with the router's next look around.
        assert cluster.chat("some words to move").status_code == 200
        wait_until(lambda: cluster.metrics()["pagemill_router_bandwidth_too_little"] == 1, "the link is found too slow")
        assert {cluster.chat(f"more words to move {n}").status_code for n in range(2)} == {200}
        metrics = cluster.metrics()
        assert metrics['pagemill_router_placed_total{mode="bandwidth"}'] >= 2
        assert metrics['pagemill_router_link_bytes_per_second{reader="d0",source="p0",transport="scripted"}'] == 10


def test_a_full_queue_says_when_to_come_back() -> None:
    with Cluster(queue_limit=1) as cluster:
        only = cluster.add("h0", "hybrid", max_batch_size=1, fault={"token_s": 0.1})
        cluster.ready()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(cluster.chat, "runs", max_tokens=30)
            wait_until(lambda: only.seen()["running"], "one runs")
            second = pool.submit(cluster.chat, "waits")
            wait_until(lambda: cluster.state()["waiting"] == 1, "one waits")
            refused = cluster.chat("too many")
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
            assert int(refused.headers["Retry-After"]) >= 1
            assert first.result().status_code == second.result().status_code == 200
