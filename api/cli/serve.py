"""`pagemill serve`: the REST service, by default with its workers in the same process tree."""

from __future__ import annotations

import errno
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fastapi import FastAPI

    from api.service.settings import ApiSettings
    from workers.settings import ServiceSettings

_RECEIVE_BYTES = 1 << 15
"""What the system keeps of each upload that waits for its turn; the service holds about as much again. Hundreds of
uploads at once stay cheap, and one alone is still fast: a window of this size fills a gigabit at a quarter of a
millisecond."""

_SWITCH_SECONDS = 0.001
"""Between threads. Each answer changes threads several times, and waits so long each time while uploads are hashed."""
_GRACE_SECONDS = 10
"""How long answers that are being sent may take once the service is asked to stop."""


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1, this machine only")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8800", max=65535)] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Pages read at the same time (without --redis).", show_default="one for each CPU"),
    ] = None,
    redis: Annotated[
        str | None, typer.Option(metavar="URL", help="Broker; workers are then started with `pagemill worker`.")
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="Job store.", show_default="SQLite in the data folder")
    ] = None,
    artifacts: Annotated[
        str | None, typer.Option(metavar="URL", help="Folder, or s3://bucket/prefix.", show_default="the data folder")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="API keys and tenants, as `pagemill keys new` writes them.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Ask for no keys, also on an address that others can reach.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "warning",
    log_format: Annotated[
        str, typer.Option(help="text or json: lines for people, or one object a line.", envvar="PAGEMILL_LOG_FORMAT")
    ] = "text",
) -> None:
    """Serve the REST API and the web page.

    Without --redis everything runs in this one process tree: nothing else to start. What is accepted survives a
    restart. Every option is also a PAGEMILL_ variable. Stop it with Ctrl-C.
    """
    try:
        from api.service.auth import BadKeysFile
        from api.service.settings import ApiSettings
        from workers.logs import LogFormat, configure_logs
        from workers.settings import ServiceSettings
        from workers.tracing import configure_tracing
    except ModuleNotFoundError as missing:
        _fail(f"The service needs a package that is not installed ({missing.name}): pip install 'pagemill[service]'")
    try:
        configure_logs(log_level, LogFormat(log_format))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    traced = configure_tracing("pagemill-api")
    signal.signal(signal.SIGTERM, _as_interrupt)
    api = ApiSettings(**_given(host=host, port=port, keys_file=keys, no_auth=no_auth or None))
    settings = ServiceSettings(**_given(redis_url=redis, database_url=database, artifacts_url=artifacts))
    listening = _listen(api.host, api.port)
    try:
        _run(settings, api, listening, workers, traced)
    except BadKeysFile as error:
        _fail(str(error))
    except KeyboardInterrupt:
        typer.echo("Stopped. What was accepted goes on at the next start.", err=True)
    finally:
        listening.close()


def _run(
    settings: ServiceSettings, api: ApiSettings, listening: socket.socket, workers: int | None, traced: bool
) -> None:
    from api.service.app import create_app
    from workers.artifacts import artifact_store
    from workers.store.job_store import JobStore

    _allow_many_files()
    sys.setswitchinterval(_SWITCH_SECONDS)
    artifacts = artifact_store(settings.artifacts())
    with JobStore.open(settings.database()) as store:
        app = create_app(settings, api, store=store, artifacts=artifacts)
        if traced:
            from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

            FastAPIInstrumentor.instrument_app(app)
        url = _url(listening)
        if settings.redis_url:
            from workers.tokens import Tokens

            tokens = Tokens(settings, store)  # tells the workers of what is accepted here, as it is accepted
            tokens.start()
            try:
                typer.echo(f"Pagemill listens on {url} (workers: `pagemill worker`).", err=True)
                _serve(app, listening)
            finally:
                tokens.stop()
            return
        from workers.runtime import EmbeddedRuntime

        runtime = EmbeddedRuntime(settings, workers, store=store, artifacts=artifacts)
        runtime.start()
        try:
            typer.echo(f"Pagemill listens on {url} (data in {settings.data_dir}). Stop it with Ctrl-C.", err=True)
            _serve(app, listening)
        finally:
            runtime.stop()


def _serve(app: FastAPI, listening: socket.socket) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            # Streams of events last as long as their documents; they must not hold up the end.
            app.state.context.stopping.set()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_SECONDS, server_header=False
    )
    server = Server(config)
    server.run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, made first: nothing is opened for a service that cannot be reached."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(found[0], found[1])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        listening.bind(found[4])
        listening.listen(2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            _fail(f"Port {port} is in use. Stop what listens there, or choose another with --port.")
        _fail(f"Cannot listen on {host}:{port}: {error.strerror or error}.")
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _allow_many_files() -> None:
    """Every upload holds a socket and a file: take as many as the system gives."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _given(**values: Any) -> dict[str, Any]:
    """Options that were given; the others come from the environment or are the defaults."""
    return {name: value for name, value in values.items() if value is not None}


def _as_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str) -> Any:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(2)
