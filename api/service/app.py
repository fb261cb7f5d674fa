"""The application: its parts put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.service import problems
from api.service.auth import Authenticator
from api.service.context import Context
from api.service.metrics import CountRequests, Metrics
from api.service.page_work import PageWork
from api.service.routers import batches, documents, events, file_parse, pages, results, service
from api.service.same_site import SameSiteOnly
from api.service.schemas import NOTICE
from api.service.settings import ApiSettings
from api.web import serving as web
from workers.artifacts import ArtifactStore
from workers.settings import ServiceSettings
from workers.store.job_store import JobStore

_DESCRIPTION = f"""PDFs and scans into Markdown and JSON.

{NOTICE} Every error is an RFC 9457 problem with a stable `code`."""


def create_app(
    settings: ServiceSettings,
    api: ApiSettings,
    *,
    store: JobStore,
    artifacts: ArtifactStore,
) -> FastAPI:
    """The REST service over these stores, which stay the caller's to close.

    Raises:
        BadKeysFile: keys are asked for and cannot be read.
    """
    context = Context(
        settings=settings,
        api=api,
        store=store,
        artifacts=artifacts,
        authenticator=Authenticator(api),
        metrics=Metrics(),
        page_work=PageWork(artifacts, api.page_image_processes, int(api.page_image_megapixels * 1_000_000)),
    )
    app = FastAPI(
        title="Pagemill",
        version=version("pagemill"),
        description=_DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        openapi_url="/openapi.json",
        generate_unique_id_function=_operation_id,
    )
    app.state.context = context
    problems.install(app)
    for part in (documents, events, pages, results, batches, service, file_parse):
        app.include_router(part.router)
    web.install(app)
    app.add_middleware(PlainHeaders)
    if not context.authenticator.required:
        known = [api.host, *api.allowed_hosts] if api.loopback or api.allowed_hosts else None
        app.add_middleware(SameSiteOnly, hosts=known)
    app.add_middleware(CountRequests, metrics=context.metrics)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    try:
        yield
    finally:
        context.stopping.set()
        await asyncio.to_thread(context.close)


class PlainHeaders:
    """ASGI middleware: headers that keep browsers from guessing types and from telling other sites."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "no-referrer")
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def _operation_id(route: APIRoute) -> str:
    """What generated clients call an operation: `documents_submit`."""
    return f"{route.tags[0]}_{route.name}".lower() if route.tags else route.name


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's own description, with the schema of problems and the ways to show a key."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = schema.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = problems.Problem.model_json_schema()
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        schema["security"] = [{}, {"bearer": []}, {"header": []}]
        app.openapi_schema = schema
    return app.openapi_schema
