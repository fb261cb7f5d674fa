"""`pagemill balance watch`: what the balancer of a running router sees and does."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from api.cli.exit_codes import ExitCode

_PATIENCE_SECONDS = 5.0


def watch(
    router: Annotated[str, typer.Option(metavar="URL", help="Address of the router.")] = "http://127.0.0.1:8810",
    token: Annotated[
        str | None, typer.Option(envvar="PAGEMILL_ENGINE_TOKEN", help="The engine's token, if it has one.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, then exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a look.")] = False,
) -> None:
    """Show roles, plan and changes under way, a line whenever something is different. Stop it with Ctrl-C."""
    said = None
    while True:
        found = _ask(router, token)
        line = _json(found) if as_json else _line(found)
        if as_json or line != said:
            typer.echo(line)
            said = line
        if once:
            return
        try:
            time.sleep(every)
        except KeyboardInterrupt:
            return


def _ask(router: str, token: str | None) -> dict[str, Any]:
    import json
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, Request, build_opener

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = Request(f"{router.rstrip('/')}/v1/engine/balance", headers=headers)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=_PATIENCE_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except HTTPError as error:
        typer.echo(f"Error: {router} answers {error.code}: is the token right?", err=True)
    except (URLError, OSError, ValueError) as error:
        typer.echo(f"Error: {router} does not answer: {error}", err=True)
    raise typer.Exit(ExitCode.FAILED)


def _json(found: dict[str, Any]) -> str:
    import json

    return json.dumps(found, ensure_ascii=False)


def _line(found: dict[str, Any]) -> str:
    roles = " ".join(f"{id}:{role}" for id, role in sorted(found["roles"].items())) or "no instances"
    moves = "".join(f"; {f['id']} {f['from']} -> {f['to']} ({f['stage']})" for f in found["under_way"])
    return f"[{found['mode']}] {roles}; {found['reason']}{moves}"
