"""The live balancer: roles follow what arrives, and only if it may act."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.engine.router.cluster import Cluster, wait_until
from tests.engine.router.nursery import ROOT
from tests.engine.router.streams import expected


def roles(cluster: Cluster) -> list[str]:
    return sorted(i["status"]["role"] for i in cluster.state()["instances"])


def test_an_empty_pool_is_filled_by_a_flip() -> None:
    with Cluster(balance="act") as cluster:
        for number in range(3):
            cluster.add(f"d{number}", "decode")
        wait_until(lambda: "prefill" in roles(cluster), "one prefills")
        assert roles(cluster).count("decode") >= 1
        wait_until(lambda: any(link["transport"] for link in cluster.state()["links"]), "they greeted")
        assert cluster.chat("balanced").json()["choices"][0]["token_ids"] == expected("balanced", 8)
        url = f"{cluster.url}/v1/engine/balance"
        wait_until(lambda: httpx.get(url).json()["flips_done"] >= 1, "the flip is over")
        assert any(decision["acted"] for decision in httpx.get(url).json()["decisions"])
        cluster.nothing_held()


def test_requests_are_right_while_roles_change() -> None:
    with Cluster(balance="act") as cluster:
        for number in range(4):
            cluster.add(f"d{number}", "decode", fault={"token_s": 0.005})
        wait_until(lambda: len(cluster.state()["instances"]) == 4, "they are there")
        with ThreadPoolExecutor(8) as pool:
            texts = [f"while roles change {n}" for n in range(60)]
            answers = list(pool.map(cluster.chat, texts))
        for text, answer in zip(texts, answers, strict=True):
            assert answer.json()["choices"][0]["token_ids"] == expected(text, 8)
        cluster.nothing_held()


def test_observing_says_what_it_would_do_and_does_nothing() -> None:
    with Cluster(balance="observe") as cluster:
        cluster.add("d0", "decode")
        cluster.add("d1", "decode")
        url = f"{cluster.url}/v1/engine/balance"
        wait_until(lambda: "prefill" in httpx.get(url).json()["wanted"].values(), "it would fill the pool")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert roles(cluster) == ["decode", "decode"]
            time.sleep(0.2)
        assert httpx.get(url).json()["flips_done"] == 0


def test_a_flip_that_fails_leaves_an_instance_that_serves() -> None:
    with Cluster(balance="act") as cluster:
        stubborn = cluster.add("d0", "decode", fault={"fail_at": "role"})
        cluster.add("d1", "decode", fault={"fail_at": "role"})
        cluster.ready(links=0)
        wait_until(lambda: stubborn.seen()["roles"] or cluster.instances[1].seen()["roles"], "it was asked")
        assert cluster.chat("still there").json()["choices"][0]["token_ids"] == expected("still there", 8)


def test_watch_shows_it_on_the_command_line() -> None:
    with Cluster(balance="observe", token="t") as cluster:
        cluster.add("p0", "prefill")
        cluster.add("d0", "decode")
        cluster.ready()
        command = [
            sys.executable,
            "-m",
            "api.cli.main",
            "balance",
            "watch",
            "--once",
            "--json",
            "--router",
            cluster.url,
        ]
        done = subprocess.run([*command, "--token", "t"], cwd=ROOT, capture_output=True, text=True)
        assert json.loads(done.stdout)["roles"] == {"p0": "prefill", "d0": "decode"}
        refused = subprocess.run([*command, "--token", "x"], cwd=ROOT, capture_output=True, text=True)
        assert refused.returncode == 5 and "401" in refused.stderr
