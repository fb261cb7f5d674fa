"""Keeps the web pages that a user visits out of a service that asks for no keys.

Such a service trusts whoever reaches it. A page of another site reaches it too, through the user's browser:
by posting a form to 127.0.0.1, or by pointing its own host name there (DNS rebinding). So the host that a
request names must be this service's, and a request that a browser sends for another site is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.service.problems import problem
from api.service.settings import is_loopback


class SameSiteOnly:
    """ASGI middleware.

    Args:
        hosts: names, beside loopback ones, that requests may be addressed to; None allows every name (the
            service listens on an address that others reach by names it does not know).
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope)
        host = request.headers.get("host", "")
        if self._hosts is not None and not self._known(host):
            refusal = problem(
                "unknown_host",
                f"This service does not answer for {host[:100]!r}. Add it to PAGEMILL_ALLOWED_HOSTS if it should.",
                instance=request.url.path,
            )
            return await refusal(scope, receive, send)
        origin = request.headers.get("origin")
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and origin and not _same_host(origin, host):
            refusal = problem("cross_site", "Requests of other sites are refused.", instance=request.url.path)
            return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)

    def _known(self, host: str) -> bool:
        name = _host_name(f"//{host}")
        return bool(name) and (is_loopback(name) or (self._hosts is not None and name in self._hosts))


def _same_host(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _host_name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
