"""`pagemill doctor`: what is installed, what works, what is missing and why."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from engine.adapters.report import VendorReport

_MARKS = {"ok": "[green]ok[/green]", "missing": "[red]missing[/red]", "off": "[dim]off[/dim]"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    operators: Annotated[
        bool, typer.Option("--operators", help="Also print what each operator of the engine is computed by.")
    ] = False,
) -> None:
    """Say what is installed, usable and missing, and what to do about it.

    Exit code 0 if everything that a default install needs is usable, 5 otherwise.
    """
    from engine.adapters.report import ask
    from pipeline.capabilities import State, inspect_machine

    findings = inspect_machine()
    usable = not any(finding.state is State.MISSING for finding in findings)
    try:
        vendors, engine_problem = ask(), ""
    except RuntimeError as error:
        vendors, engine_problem = [], str(error)
    if as_json:
        engine = {"vendors": [vendor.model_dump() for vendor in vendors], "problem": engine_problem}
        answer = {"usable": usable, "findings": [asdict(f) for f in findings], "engine": engine}
        typer.echo(json.dumps(answer, indent=2))
    else:
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False)
        table = Table("", "part", "what was found", box=None, pad_edge=False)
        for finding in findings:
            table.add_row(_MARKS[finding.state], finding.name, finding.detail)
        for vendor in vendors:
            table.add_row(_MARKS["ok" if vendor.available else "off"], f"engine on {vendor.vendor}", _summary(vendor))
        if engine_problem:
            table.add_row(_MARKS["off"], "engine", engine_problem)
        console.print(table)
        if operators:
            _print_operators(vendors, console)
    raise typer.Exit(0 if usable else 5)


def _summary(vendor: VendorReport) -> str:
    if not vendor.available:
        return f"unavailable, because {vendor.reason}"
    counts = []
    for mode, choices in vendor.modes.items():
        own = [choice.startswith("vendor:") for name, choice in choices.items() if name != "mode"]
        runs = choices["mode"].partition(":")[0]
        instead = "" if runs == mode else f" (runs {choices['mode']})"
        counts.append(f"{mode} {sum(own)} of {len(own)} operators its own{instead}")
    return f"{vendor.reason}; {', '.join(counts)}"


def _print_operators(vendors: list[VendorReport], console: Console) -> None:
    from rich.table import Table

    for vendor in vendors:
        for mode, choices in vendor.modes.items():
            console.print(f"\n{vendor.vendor}, {mode}: {choices['mode']}")
            table = Table(box=None, pad_edge=False, show_header=False)
            for name, choice in choices.items():
                if name != "mode":
                    table.add_row(f"  {name}", choice)
            console.print(table)
