"""The router's HTTP surface."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.pools.messages import InstanceStatus
from engine.router.errors import Forbidden, InvalidRequest, RouterError, Unauthorized
from engine.router.metrics import CONTENT_TYPE
from engine.router.openai.chat import ChatCompletions, error_response
from engine.router.registry import Instance
from engine.router.router import Router

Handler = Callable[[Request], Awaitable[Response]]

MAX_STATUS_BYTES = 1 << 20


def create_app(router: Router) -> Starlette:
    """The application; it starts and stops the router."""
    surface = _Surface(router)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await router.start()
        try:
            yield
        finally:
            await router.stop()

    return Starlette(
        routes=[
            Route("/v1/chat/completions", ChatCompletions(router, surface.check_user), methods=["POST"]),
            Route("/v1/models", surface.models),
            Route("/v1/instances", surface.register, methods=["POST"]),
            Route("/v1/instances", surface.instances, methods=["GET"]),
            Route("/v1/engine/balance", surface.balance),
            Route("/health", surface.health),
            Route("/metrics", surface.metrics),
        ],
        exception_handlers={RouterError: _answer_error, HTTPException: _answer_http},
        lifespan=lifespan,
    )


class _Surface:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def models(self, request: Request) -> Response:
        self.check_user(request)
        data = [
            {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "pagemill",
                "max_model_len": self._router.session_len(name),
            }
            for name in self._router.registry.models()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def register(self, request: Request) -> Response:
        """An instance describes itself, from time to time: its lease."""
        self._check_instance(request)
        content = bytearray()
        async for data in request.stream():
            content += data
            if len(content) > MAX_STATUS_BYTES:
                raise InvalidRequest("too large for a description of an instance")
        try:
            status = InstanceStatus.model_validate_json(bytes(content))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise InvalidRequest(f"not an InstanceStatus: {first['loc']}: {first['msg']}") from None
        url = urlsplit(status.address.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise InvalidRequest("an instance's url is http://host:port")
        if not self._router.settings.token and not _is_local(url.hostname):
            raise Forbidden("without PAGEMILL_ENGINE_TOKEN only instances of this machine are taken")
        return JSONResponse({"lease_s": self._router.heard(status)})

    async def instances(self, request: Request) -> Response:
        self._check_instance(request)
        now = asyncio.get_running_loop().time()
        return JSONResponse(
            {
                "instances": [
                    {
                        "status": instance.status.model_dump(mode="json", exclude={"prefix_roots"}),
                        "lease_left_s": round(self._router.settings.lease_s - (now - instance.heard), 3),
                        "usable": instance.usable(now),
                        "prefills": instance.prefills,
                        "running": instance.running,
                        "waiting_pull": instance.waiting_pull,
                        "kv_tokens": instance.kv_tokens,
                    }
                    for instance in self._router.registry
                ],
                "links": [
                    {
                        "source": link.source.id,
                        "reader": link.reader.id,
                        "transport": link.bandwidth.transport if link.bandwidth else None,
                        "bytes_per_s": link.bandwidth.bytes_per_s if link.bandwidth else None,
                        "why": link.why,
                    }
                    for link in self._router.links
                ],
                "bandwidth_too_little": self._router.links.too_slow,
                "waiting": len(self._router.admission),
                "live": self._router.serving.live,
            }
        )

    async def balance(self, request: Request) -> Response:
        """What the balancer sees, plans and does."""
        self._check_instance(request)
        return JSONResponse(self._router.balance.show())

    async def health(self, request: Request) -> Response:
        """200 while requests would be served; for each instance what its canary said, and how long ago."""
        now = asyncio.get_running_loop().time()
        ok = self._router.is_serving()
        body = {
            "ok": ok,
            "reason": "" if ok else "no instance is ready with a canary that answers right",
            "instances": [_health(instance, now) for instance in self._router.registry],
        }
        return JSONResponse(body, 200 if ok else 503)

    async def metrics(self, request: Request) -> Response:
        return Response(self._router.metrics.render(), media_type=CONTENT_TYPE)

    def check_user(self, request: Request) -> None:
        """Let in who has the key, if there is one."""
        key = self._router.settings.api_key
        if key and not _bears(request, key):
            raise Unauthorized("the key is missing or wrong")

    def _check_instance(self, request: Request) -> None:
        token = self._router.settings.token
        if token:
            if not _bears(request, token):
                raise Unauthorized("the engine's token is missing or wrong")
        elif request.client is None or not _is_local(request.client.host) or "origin" in request.headers:
            # A browser on this machine is not this machine: what it sends may be any page's.
            raise Forbidden("without PAGEMILL_ENGINE_TOKEN only programs of this machine may ask")


def _health(instance: Instance, now: float) -> dict[str, Any]:
    health = instance.status.health
    return {
        "engine_id": instance.id,
        "epoch": instance.epoch,
        "role": instance.status.role,
        "phase": instance.status.phase,
        "usable": instance.usable(now),
        "canary_ok": health.ok,
        "canary_age_s": round(health.age_s + now - instance.heard, 3),
        "canary_s": health.seconds,
        "reason": health.reason,
    }


def _bears(request: Request, secret: str) -> bool:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), secret.encode())


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RouterError)
    return error_response(error)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    body = {"error": {"message": error.detail, "type": "invalid_request_error", "param": None, "code": code}}
    return JSONResponse(body, error.status_code)
