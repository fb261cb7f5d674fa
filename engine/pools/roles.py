"""What an instance does for requests, and how that changes: drain, switch, verify. Weights and KV stay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.pools.errors import Draining, EngineFailed, NotReady, WrongRole
from engine.role import Role

SERVES: dict[str, frozenset[Role]] = {
    "prefill": frozenset({Role.PREFILL, Role.HYBRID}),
    "decode": frozenset({Role.DECODE, Role.HYBRID}),
    "generate": frozenset({Role.HYBRID, Role.PREFILL, Role.DECODE}),
}
"""Any role can compute a request whole: it is what is left when the other pool is empty or cannot be reached."""


def ended_by(role: Role) -> frozenset[str]:
    """Kinds of work that an instance of this role does not do, which have to end before it gets it."""
    return frozenset(work for work, roles in SERVES.items() if role not in roles)


class RoleState:
    """Role and phase of one instance. Lives in the event loop of the HTTP server."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.phase = "starting"
        self._changing = asyncio.Lock()

    def check(self, work: str, early: bool = False) -> None:
        """Raise NotReady, Draining or WrongRole unless this kind of work is taken now.

        Args:
            early: whoever asks knows that it belongs to another role, which the instance will get soon.
        """
        if self.phase in ("draining", "switching"):
            raise Draining("The instance is changing its role.")
        if self.phase != "ready":
            raise NotReady(f"The instance is {self.phase}.")
        if self.role not in SERVES[work] and not early:
            raise WrongRole(f"This instance is {self.role}; it does not {work}.")

    async def change(
        self, role: Role, drain: Callable[[], Awaitable[None]], verify: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Change the role. True if it is another one than before.

        Args:
            drain: returns when nothing runs any more that the new role does not do.
            verify: a canary; if it fails, the instance has failed.

        Raises:
            NotReady: the instance is starting or has failed.
            EngineFailed: the canary was wrong.
        """
        async with self._changing:
            if self.phase != "ready":
                raise NotReady(f"The instance is {self.phase}.")
            if role is self.role:
                return False
            try:
                self.phase = "draining"
                await drain()
                self.phase = "switching"
                self.role = role
                if not await verify():
                    self.phase = "failed"
                    raise EngineFailed("The canary failed after the change of role.")
            finally:
                if self.phase in ("draining", "switching"):
                    self.phase = "ready"
            return True
