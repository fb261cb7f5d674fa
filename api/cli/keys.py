"""`pagemill keys new`: make an API key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="keys", no_args_is_help=True, help="API keys of the service.")


@app.callback()
def _keys() -> None:
    pass


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="What the key is for; shown nowhere but in the file.")],
    tenant: Annotated[str, typer.Option(help="Whose documents it sees.")] = "default",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", envvar="PAGEMILL_KEYS_FILE", help="Add it to this TOML file.")
    ] = None,
) -> None:
    """Make a key and print it, once. The file gets its hash only.

    Without --file, prints the entry that you add to the file yourself.
    """
    from api.service.auth import hash_key, new_key

    key = new_key()
    entry = f'[[keys]]\nname = {json.dumps(name)}\ntenant = {json.dumps(tenant)}\nsha256 = "{hash_key(key).hex()}"\n'
    if file is None:
        typer.echo(entry)
    else:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as keys:
            keys.write(f"{'' if keys.tell() == 0 else chr(10)}{entry}")
        typer.echo(f"Added to {file}. Restart the service to use it.", err=True)
    typer.echo(key)
