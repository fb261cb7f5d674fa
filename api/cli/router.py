"""`pagemill router`: the one address of the engine, before its instances."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.exit_codes import ExitCode


def router(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1, this machine only")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8810", max=65535)] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="Secret between router and instances; better given as PAGEMILL_ENGINE_TOKEN.",
            show_default="none: only instances of this machine",
        ),
    ] = None,
    instances: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An instance that does not register itself. Repeatable."),
    ] = None,
) -> None:
    """Serve OpenAI-compatible chat completions from a pool that prefills and a pool that decodes.

    Instances register themselves (`pagemill engine serve --router URL`). Every option is also a PAGEMILL_ROUTER_
    variable, and so are the limits; PAGEMILL_ROUTER_COSTS names a file of `pagemill balance calibrate`. Stop it with
    Ctrl-C.
    """
    try:
        from engine.router.server import listen, serve, url_of
        from engine.router.settings import RouterSettings
    except ModuleNotFoundError as missing:
        _fail(f"The router needs a package that is not installed ({missing.name}): pip install 'pagemill[engine]'")
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "token": token,
        "instances": tuple(instances) if instances else None,
    }
    settings = RouterSettings(**{name: value for name, value in given.items() if value is not None})
    if settings.costs:
        _check_costs(settings.costs)
    try:
        listening = listen(settings.host, settings.port)
    except OSError as error:
        _fail(f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}.")
    typer.echo(f"The router listens on {url_of(listening)}. Stop it with Ctrl-C.", err=True)
    serve(settings, listening)


def _check_costs(path: str) -> None:
    from pathlib import Path

    from engine.balancer.costs import Costs

    try:
        Costs.load(Path(path))
    except OSError as error:
        _fail(f"Cannot read the costs in {path}: {error.strerror or error}.")
    except ValueError as error:
        _fail(f"Not costs: {error}. `pagemill balance calibrate` writes them.")


def _fail(message: str) -> Any:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(ExitCode.USAGE)
