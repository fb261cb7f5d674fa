"""What has a value at the time of asking: instances, links, queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.role import Role
from engine.router.metrics import Sample

if TYPE_CHECKING:
    from engine.router.router import Router


def gauges(router: Router) -> Iterator[tuple[str, str, list[Sample]]]:
    """(name without prefix, help, samples)."""
    instances = list(router.registry)
    loop = asyncio.get_running_loop()
    by_role: dict[tuple[str, str], int] = {}
    for i in instances:
        key = (i.status.role.value, i.status.phase)
        by_role[key] = by_role.get(key, 0) + 1
    yield (
        "instances",
        "Registered instances.",
        [({"role": role, "phase": phase}, count) for (role, phase), count in sorted(by_role.items())],
    )
    yield "lost_instances", "Incarnations that were lost.", [({}, router.registry.lost)]
    yield "waiting", "Requests that wait for places.", [({}, len(router.admission))]
    yield "live", "Requests that are being served, those that wait included.", [({}, router.serving.live)]
    yield (
        "transfer_queue",
        "Prefilled requests whose KV is not pulled yet.",
        [({"instance": i.id}, i.waiting_pull) for i in instances if i.status.role is Role.PREFILL],
    )
    yield (
        "leases",
        "Prefills whose KV an instance keeps for a reader.",
        [({"instance": i.id}, i.status.leases) for i in instances],
    )
    yield "free_kv_blocks", "Free blocks.", [({"instance": i.id}, i.status.free_blocks) for i in instances]
    yield "kv_blocks", "All blocks.", [({"instance": i.id}, i.status.total_blocks) for i in instances]
    yield (
        "instance_cached_tokens",
        "Prompt tokens whose KV an instance had, since its start.",
        [({"instance": i.id}, i.status.counters.get("cached_tokens_total", 0.0)) for i in instances],
    )
    yield (
        "running",
        "Sequences that an instance computes.",
        [({"instance": i.id}, i.status.running) for i in instances],
    )
    yield (
        "canary_age_seconds",
        "Since an instance's last canary inference.",
        [({"instance": i.id}, i.status.health.age_s + loop.time() - i.heard) for i in instances],
    )
    yield (
        "canary_ok",
        "Whether it answered right.",
        [({"instance": i.id}, float(i.status.health.ok)) for i in instances],
    )
    yield (
        "link_bytes_per_second",
        "Bandwidth measured when a pair was greeted.",
        [
            (
                {"source": link.source.id, "reader": link.reader.id, "transport": link.bandwidth.transport},
                link.bandwidth.bytes_per_s,
            )
            for link in router.links
            if link.bandwidth
        ],
    )
    yield "kv_traffic_bytes_per_second", "KV that requests would move.", [({}, router.links.traffic.at(loop.time()))]
    yield (
        "bandwidth_too_little",
        "1 while requests run on one instance because links are too slow.",
        [({}, float(router.links.too_slow))],
    )
