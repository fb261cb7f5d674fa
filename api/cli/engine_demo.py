"""`pagemill engine demo`: both pools on this machine, with a small model of random weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from engine.router.demo import Demo


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the checkpoint and what the processes print here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the engine at work: a prefill and a decode instance against one that does both.

    Writes a small Qwen2-VL checkpoint of random weights (its answers are nonsense, but always the same), starts a
    router with its instances on the CPU, sends text and images both ways, compares the tokens, and cleans up. About
    a minute on two cores. Exits with 0 only if all tokens are equal and no KV block is left.
    """
    try:
        from engine.router.demo import run_demo
        from engine.router.local_stack import StackFailed
    except ModuleNotFoundError as missing:
        typer.echo(f"Error: this needs {missing.name}: pip install 'pagemill[engine]'", err=True)
        raise typer.Exit(ExitCode.USAGE) from None
    try:
        found = run_demo(lambda line: typer.echo(line, err=True), keep)
    except StackFailed as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(ExitCode.FAILED) from None
    if as_json:
        _print_json(found)
    else:
        _print_table(found)
    if not found.ok:
        raise typer.Exit(ExitCode.FAILED)


def _print_json(found: Demo) -> None:
    import json
    from dataclasses import asdict

    typer.echo(json.dumps({"ok": found.ok, **asdict(found)}, ensure_ascii=False, indent=2))


def _print_table(found: Demo) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="One prefill and one decode instance, against one that does both", title_justify="left")
    table.add_column("request")
    table.add_column("tokens")
    for heading in ("TTFT ms", "TPOT ms", "alone: TTFT ms", "TPOT ms"):
        table.add_column(heading, justify="right")
    for row in found.rows:
        times = (row.split_ttft_s, row.split_tpot_s, row.single_ttft_s, row.single_tpot_s)
        equal = f"{row.tokens}, {'equal' if row.equal else 'NOT EQUAL'}"
        table.add_row(row.request, equal, *(f"{seconds * 1e3:.1f}" for seconds in times))
    console = Console()
    console.print(table)
    console.print(
        f"{found.kv_bytes:,} bytes of KV moved by {found.transport} "
        f"({found.link_bytes_per_s / 1e9:.2f} GB/s when measured), {found.fallbacks} computed again, "
        f"{found.blocks_left} blocks left.",
        highlight=False,
    )
    for line in found.failures:
        console.print(f"Not as it should be: {line}.", highlight=False)
