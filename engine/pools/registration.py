"""Telling a router that this instance is there, again and again: a lease that ends when the instance does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import httpx

from engine.pools.messages import InstanceStatus

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 1.0
SHORTEST_SECONDS = 0.2


async def keep_registered(router: str, token: str, status: Callable[[], Awaitable[InstanceStatus]]) -> None:
    """Register, and renew three times within each lease. Returns only when cancelled.

    Args:
        router: its base URL.
        status: what is posted to `/v1/instances`; the answer is `{"lease_s": seconds}`.
    """
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    known = False
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, headers=headers, trust_env=False) as client:
        while True:
            pause = RETRY_SECONDS
            try:
                body = (await status()).model_dump_json()
                answer = await client.post(f"{router.rstrip('/')}/v1/instances", content=body)
                answer.raise_for_status()
                pause = max(SHORTEST_SECONDS, float(answer.json()["lease_s"]) / 3)
                if not known:
                    log.info("registered with %s", router)
                known = True
            except Exception as error:  # noqa: BLE001 - a router that is away or talks nonsense is tried again
                if known:
                    log.warning("the router at %s does not answer: %s", router, error)
                known = False
            await asyncio.sleep(pause)
