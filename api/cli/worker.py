"""`pagemill worker`: do the work of a service that others serve."""

from __future__ import annotations

from typing import Annotated

import typer

_KINDS = ("prepare", "page", "recognise", "assemble")


def worker(
    queues: Annotated[
        str, typer.Option(help=f"Kinds of work to do, separated by commas: {', '.join(_KINDS)}.", metavar="LIST")
    ] = ",".join(_KINDS),
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, help="Pages read at the same time; fewer while memory is short.", show_default="one per CPU"
        ),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(help="Broker, redis://...  [env var: PAGEMILL_REDIS_URL]", metavar="URL", show_default=False),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            help="Job store, as postgresql://...  [env var: PAGEMILL_DATABASE_URL]", metavar="URL", show_default=False
        ),
    ] = None,
    artifacts: Annotated[
        str | None,
        typer.Option(
            help="Artifact store: a folder or s3://...  [env var: PAGEMILL_ARTIFACTS_URL]",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[
        str, typer.Option(help="text or json: lines for people, or one object a line.", envvar="PAGEMILL_LOG_FORMAT")
    ] = "text",
) -> None:
    """Do queued work until told to stop.

    SIGTERM drains: nothing new is taken, pages in work get PAGEMILL_DRAIN_SECONDS to finish, the rest is handed
    back. Any number of workers may run against one job store; without a broker one alone may, too.
    """
    wanted = [queue.strip() for queue in queues.split(",") if queue.strip()]
    unknown = [queue for queue in wanted if queue not in _KINDS]
    if unknown or not wanted:
        raise typer.BadParameter(f"Choose from {', '.join(_KINDS)}.", param_hint="--queues")
    from workers.logs import LogFormat, configure_logs
    from workers.runtime import run_worker
    from workers.settings import ServiceSettings
    from workers.store import JobKind
    from workers.tracing import configure_tracing

    try:
        configure_logs(log_level, LogFormat(log_format))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    configure_tracing("pagemill-worker")
    given = {"redis_url": redis, "database_url": database, "artifacts_url": artifacts}
    settings = ServiceSettings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    run_worker(settings, [JobKind(queue) for queue in wanted], concurrency)
