"""`/v1/info`, `/healthz`, `/readyz`, `/metrics`: about the service itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response

from api.service.accepting import upload_limits
from api.service.context import Caller, Context, Shared
from api.service.metrics import CONTENT_TYPE
from api.service.problems import responses
from api.service.schemas import NOTICE, Check, EngineInfo, Health, Info, Readiness, ResultFormat
from pipeline.page_model import Route
from pipeline.settings import settings as pipeline_settings
from pipeline.versions import parser_versions
from pipeline.vlm_engine import check_health, configured_engine, model_name

router = APIRouter(tags=["service"])

_CHECK_SECONDS = 5.0


@router.get("/v1/info", response_model=Info, responses=responses("unauthorized"), summary="What runs here")
async def info(context: Shared, tenant: Caller) -> Info:
    """Versions, routes, limits. Says that MinerU is used."""
    limits = upload_limits(context)
    engine = configured_engine()
    return Info(
        product="Pagemill",
        notice=NOTICE,
        versions=parser_versions(),
        routes=[str(route) for route in Route if route is not Route.VLM or engine is not None],
        formats=[str(format) for format in ResultFormat],
        limits={
            "max_file_bytes": limits.max_bytes,
            "max_files_per_request": limits.max_files,
            "max_pages": pipeline_settings().max_pages,
            "max_wait_seconds": context.api.max_wait_seconds,
            "requests_per_minute": tenant.requests_per_minute,
            "max_documents": tenant.max_documents,
        },
        authentication=context.authenticator.required,
        engine=EngineInfo(model=await context.read(model_name, engine)) if engine is not None else None,
    )


@router.get("/healthz", response_model=Health, summary="Whether the process answers")
async def healthz() -> Health:
    """Nothing else is looked at: a store that is away does not make a healthy process unhealthy."""
    return Health(status="ok")


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Something that it needs is away."}},
    summary="Whether work can be done",
)
async def readyz(context: Shared, response: Response) -> Readiness:
    """Job store, artifact store, broker, workers seen within their heartbeat, engine."""
    names = {"store": _store, "artifacts": _artifacts, "broker": _broker, "workers": _workers}
    if configured_engine() is not None:
        names["engine"] = _engine
    results = await asyncio.gather(*(_check(look, context) for look in names.values()))
    checks = dict(zip(names, results, strict=True))
    ready = all(check.ok for check in checks.values())
    response.status_code = 200 if ready else 503
    response.headers["Cache-Control"] = "no-store"
    return Readiness(ready=ready, checks=checks)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    summary="Prometheus metrics",
)
async def metrics(context: Shared) -> Response:
    """Requests of this process; documents, pieces of work and workers as the job store counts them."""
    fleet, workers = await asyncio.gather(context.ask(context.store.counts), context.ask(context.store.workers))
    counts = {
        "documents": {state: float(count) for state, count in fleet.documents.items()},
        "pieces_queued": {kind: float(count) for kind, count in fleet.queued.items()},
        "pieces_leased": {kind: float(count) for kind, count in fleet.leased.items()},
        "pages_waiting": {"page": float(fleet.pages_waiting)},
        "workers_alive": {"worker": float(len(workers))},
    }
    content = await context.ask(context.metrics.render, counts)
    return Response(content, media_type=CONTENT_TYPE)


async def _check(look: Callable[[Context], Awaitable[str]], context: Context) -> Check:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return Check(ok=True, detail=await look(context))
    except TimeoutError:
        return Check(ok=False, detail=f"no answer within {_CHECK_SECONDS:g} s")
    except Exception as error:  # noqa: BLE001 - whatever a client library raises means that it is not ready
        return Check(ok=False, detail=f"{type(error).__name__}: {error}".splitlines()[0][:300])


async def _store(context: Context) -> str:
    await context.ask(context.store.ping)
    return "answers"


async def _artifacts(context: Context) -> str:
    await context.read(context.artifacts.check)
    return "can be read and written"


async def _workers(context: Context) -> str:
    workers = await context.ask(context.store.workers)
    if not workers:
        raise RuntimeError("no worker has been heard of within its heartbeat")
    return f"{len(workers)} alive"


async def _engine(context: Context) -> str:
    engine = configured_engine()
    return await context.read(check_health, engine) if engine is not None else "none"


async def _broker(context: Context) -> str:
    url = context.settings.redis_url
    if not url:
        return "in this process"
    from redis.asyncio import Redis

    async with Redis.from_url(url, socket_connect_timeout=2, socket_timeout=2) as redis:
        await redis.ping()
    return "answers"
