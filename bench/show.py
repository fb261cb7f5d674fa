"""A report for people: a table of figures, then what fell short and why."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.figures import Figure, Report


def show(report: Report, console: Console) -> None:
    """Print `report`."""
    table = Table(title=f"pagemill bench {report.bench}", title_justify="left")
    for heading in ("figure", "measured", "reach", "unit", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "reach") else "left")
    for figure in report.figures:
        table.add_row(figure.name, _number(figure.value), _number(figure.reach), figure.unit, _verdict(figure))
    console.print(table)
    for failure in report.failures:
        console.print(f"[red]-[/red] {escape(failure)}", highlight=False, soft_wrap=True)


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:g}"


def _verdict(figure: Figure) -> str:
    return "[green]ok[/green]" if figure.ok else "[red]short[/red]"
