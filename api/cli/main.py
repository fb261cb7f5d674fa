"""`pagemill`: the commands and what they have in common. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.balance import app as balance
from api.cli.doctor import doctor
from api.cli.engine import app as engine
from api.cli.health import health
from api.cli.ingest import ingest
from api.cli.jobs import app as jobs
from api.cli.keys import app as keys
from api.cli.parse import parse
from api.cli.router import router
from api.cli.serve import serve
from api.cli.worker import worker
from bench.cli import app as bench

app = typer.Typer(
    name="pagemill",
    help="PDFs and scans into Markdown and JSON. Uses MinerU (https://github.com/opendatalab/MinerU).",
    epilog="Start with:  pagemill parse report.pdf -o out      Set-up in doubt:  pagemill doctor",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(parse)
app.command()(ingest)
app.command()(doctor)
app.command()(serve)
app.command()(worker)
app.command()(router)
app.command()(health)
app.add_typer(keys, name="keys")
app.add_typer(jobs, name="jobs")
app.add_typer(engine, name="engine")
app.add_typer(balance, name="balance")
app.add_typer(bench, name="bench", help="Measure quality and speed, against peers in the same run.")


def _print_version(wanted: bool) -> None:
    if wanted:
        from pipeline.versions import version_of

        typer.echo(f"pagemill {version_of('pagemill')} (MinerU {version_of('mineru')})")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Entry point of the `pagemill` command."""
    app()


if __name__ == "__main__":
    run()
