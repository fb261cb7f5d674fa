"""Hundreds of requests while instances of both roles are killed at random."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.engine.router.cluster import Cluster, wait_until
from tests.engine.router.streams import expected, stream

REQUESTS, CLIENTS, DEADLINE_S = 240, 16, 30.0
TYPED = {"instance_lost", "no_instance", "deadline_exceeded", "queue_full"}


def test_every_request_ends_right_or_typed_and_in_time() -> None:
    seed = random.Random(7)
    with Cluster(lease_s=2) as cluster:
        for number in range(2):
            cluster.add(f"p{number}", "prefill", lease=3)
            cluster.add(f"d{number}", "decode", lease=3, fault={"token_s": 0.005})
        cluster.ready()
        over = threading.Event()
        kills = [0]

        def kill_and_restart() -> None:
            while not over.wait(seed.uniform(0.3, 1.0)):
                victim = seed.choice(cluster.instances)
                victim.kill()
                kills[0] += 1
                cluster.replace(victim)

        killer = threading.Thread(target=kill_and_restart)
        killer.start()
        try:
            with ThreadPoolExecutor(CLIENTS) as pool:
                ends = list(pool.map(lambda n: one(cluster, n), range(REQUESTS)))
        finally:
            over.set()
            killer.join()
        wrong = [end for end in ends if end]
        assert wrong == []
        assert kills[0] >= 3
        cluster.ready()
        cluster.nothing_held()
        wait_until(lambda: cluster.chat("afterwards").status_code == 200, "it serves afterwards")


def one(cluster: Cluster, number: int) -> str | None:
    """What is wrong with the end of one request."""
    began, text, count = time.monotonic(), f"request {number}", 5 + number % 30
    if number % 2:
        tokens, _, error = stream(cluster, text, max_tokens=count, timeout=DEADLINE_S)
    else:
        answer = cluster.chat(text, max_tokens=count, timeout=DEADLINE_S).json()
        error = answer["error"]["code"] if "error" in answer else None
        tokens = [] if error else answer["choices"][0]["token_ids"]
    seconds = time.monotonic() - began
    if seconds > DEADLINE_S + 5:
        return f"{number} took {seconds:.1f} s"
    if error is None:
        return None if tokens == expected(text, count) else f"{number} is wrong"
    return None if error in TYPED else f"{number} ended with {error}"
