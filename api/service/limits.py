"""Requests of one tenant in a minute, counted in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from api.service.auth import Tenant
from api.service.problems import TooMany


class RateLimiter:
    """A token bucket for each tenant that holds at most one minute's requests.

    Each API process counts for itself: with N of them behind a balancer a tenant gets up to N times its limit.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, tenant: Tenant) -> None:
        """Count one request. Raises TooMany with the seconds until the next one is allowed."""
        limit = tenant.requests_per_minute
        if not limit:
            return
        now = self._clock()
        tokens, since = self._buckets.get(tenant.name, (float(limit), now))
        tokens = min(float(limit), tokens + (now - since) * limit / 60)
        if tokens < 1:
            self._buckets[tenant.name] = tokens, now
            raise TooMany(
                f"More than {limit} requests a minute.",
                code="rate_limited",
                retry_after=math.ceil((1 - tokens) * 60 / limit),
            )
        self._buckets[tenant.name] = tokens - 1, now
