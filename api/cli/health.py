"""`pagemill health`: whether a service process of this machine is well, as an exit code for what watches it."""

from __future__ import annotations

import enum
import os
import socket
from typing import Annotated

import typer

_PATIENCE_SECONDS = 3.0


class Part(enum.StrEnum):
    """What is asked about."""

    API = "api"
    WORKER = "worker"
    ROUTER = "router"
    INSTANCE = "instance"


_PATHS = {Part.API: "/healthz", Part.ROUTER: "/metrics", Part.INSTANCE: "/health"}
_ADDRESSES = {
    Part.API: "http://127.0.0.1:8800",
    Part.ROUTER: "http://127.0.0.1:8810",
    Part.INSTANCE: "http://127.0.0.1:8820",
}


def health(
    part: Annotated[Part, typer.Argument(help="Which part of the service.")],
    url: Annotated[
        str | None,
        typer.Option(help="Its address.", show_default="this machine, port 8800 (api), 8810 (router), 8820 (instance)"),
    ] = None,
) -> None:
    """Exit with 0 if the part is well, else say why and exit with 1.

    The API and the engine's router are well if they answer; an instance of the engine if its canary inference is
    right; a worker if one of this host has given a sign of life to the job store within the time of a lease.
    """
    problem = _worker() if part is Part.WORKER else _answers(part, url or _ADDRESSES[part])
    if problem:
        typer.echo(problem, err=True)
        raise typer.Exit(1)


def _answers(part: Part, address: str) -> str | None:
    from urllib.error import URLError
    from urllib.request import ProxyHandler, Request, build_opener

    url = address + _PATHS[part]
    # The secret of the engine's parts is theirs alone.
    token = os.environ.get("PAGEMILL_ENGINE_TOKEN") if part is not Part.API else None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        # No proxy of the environment: the address is this machine's.
        with build_opener(ProxyHandler({})).open(Request(url, headers=headers), timeout=_PATIENCE_SECONDS):
            return None
    except (URLError, OSError) as error:
        return f"{url} does not answer: {error}"


def _worker() -> str | None:
    from sqlalchemy.exc import SQLAlchemyError

    from workers.settings import ServiceSettings
    from workers.store.job_store import JobStore

    settings = ServiceSettings()
    host = socket.gethostname()[:255]
    try:
        with JobStore.open(settings.database(), patience=_PATIENCE_SECONDS) as store:
            alive = store.workers(alive_within=settings.lease_seconds)
    except SQLAlchemyError as error:
        return f"The job store does not answer: {error}".splitlines()[0]
    return None if any(worker.host == host for worker in alive) else f"No worker of {host} has been heard of."
