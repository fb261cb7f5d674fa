"""`pagemill bench ...`: one subcommand for each bench, all with `--json`, all exiting 0 only if all is reached."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from bench.checkpoint import UnusableCheckpoint

if TYPE_CHECKING:
    from bench.figures import Report

app = typer.Typer(
    name="bench", no_args_is_help=True, help="Measure quality and speed against stated bounds and against peers."
)

FELL_SHORT = 1
USAGE = 2
STANDARD_OUTPUT = "-"


class JsonValueOptional(TyperCommand):
    """Lets `--json` stand alone, for standard output, or be followed by the file to write as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--json" in args:
            following = args.index("--json") + 1
            if following == len(args) or args[following].startswith("--"):
                args = [*args[:following], STANDARD_OUTPUT, *args[following:]]
        return super().parse_args(ctx, args)


Json = Annotated[
    str | None,
    typer.Option("--json", metavar="[OUT]", help="Print one JSON object; with OUT, also write it to that file."),
]
Peer = Annotated[bool, typer.Option("--peer", help="Also measure bare MinerU on the same files.")]
Keep = Annotated[Path | None, typer.Option(help="Keep what was parsed in this folder.")]


@app.command(cls=JsonValueOptional)
def quality(
    checks: Annotated[Path, typer.Option(help="Facts, one JSON object a line.")],
    pdfs: Annotated[Path, typer.Option(help="Folder of the PDFs that the facts name.")],
    json: Json = None,
    route: Annotated[str, typer.Option(help="As for `pagemill parse`.")] = "auto",
    quality: Annotated[str, typer.Option(help="As for `pagemill parse`.")] = "standard",
    peer: Peer = False,
    keep: Keep = None,
) -> None:
    """Facts about real pages that the Markdown bears out, by kind and by file."""
    from bench.quality import measure

    arguments = ("--route", route, "--quality", quality)
    _answer(lambda: measure(checks, pdfs, arguments=arguments, with_peer=peer, keep=keep), json)


@app.command(cls=JsonValueOptional)
def text(
    dir: Annotated[Path, typer.Option(help="Folder of PDFs, each with its text in a .txt beside it.")],
    json: Json = None,
    peer: Peer = False,
    keep: Keep = None,
) -> None:
    """Similarity of the Markdown's text to the known text of born-digital documents."""
    from bench.text import measure

    _answer(lambda: measure(dir, with_peer=peer, keep=keep), json)


@app.command(cls=JsonValueOptional)
def scans(
    dir: Annotated[Path, typer.Option(help="Folder of the scans, ocr_test*.pdf.")],
    json: Json = None,
    quality: Annotated[str, typer.Option(help="As for `pagemill parse`.")] = "standard",
    keep: Keep = None,
) -> None:
    """Character errors in one scanned sentence, each way up."""
    from bench.scans import measure

    _answer(lambda: measure(dir, arguments=("--quality", quality), keep=keep), json)


@app.command()
def parse(
    file: Annotated[Path, typer.Argument(help="A born-digital PDF, the longer the better.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Repetitions; medians are compared.")] = 1,
    memory: Annotated[bool, typer.Option(help="Also parse 50 and 400 pages for peak memory (minutes).")] = True,
) -> None:
    """Pages a second and peak memory, with 1 and 2 workers, against bare MinerU."""
    from bench.parse import measure

    _answer(lambda: measure(file, runs=runs, memory=memory), STANDARD_OUTPUT if json else None)


@app.command(cls=JsonValueOptional)
def hostile(
    dir: Annotated[Path, typer.Option(help="Folder of files that break parsers.")],
    json: Json = None,
) -> None:
    """Broken, locked and odd files: a typed error or a valid document, in time, nobody left behind."""
    from bench.hostile import measure

    _answer(lambda: measure(dir), json)


@app.command(cls=JsonValueOptional)
def startup(
    json: Json = None,
    runs: Annotated[int, typer.Option(min=1, help="Repetitions; the median counts.")] = 7,
) -> None:
    """How soon `pagemill --help` answers, and what it imports."""
    from bench.startup import measure

    _answer(lambda: measure(runs), json)


@app.command(cls=JsonValueOptional)
def service(
    file: Annotated[
        Path | None,
        typer.Option(help="A born-digital PDF whose pages make the documents.", show_default="one of PAGEMILL_CORPUS"),
    ] = None,
    json: Json = None,
    pages: Annotated[int, typer.Option(min=8, help="Pages of the documents whose speed is compared.")] = 96,
    documents: Annotated[int, typer.Option(min=1, help="Documents of the batch.")] = 1000,
    only: Annotated[list[str] | None, typer.Option(help="Measure this part only; may be repeated.")] = None,
) -> None:
    """The service: first page, fairness, speed, steadiness under uploads, a large batch, a restart."""
    from bench.service import default_file, measure

    _answer(lambda: measure(file or default_file(), pages=pages, small=documents, only=tuple(only or ())), json)


@app.command(cls=JsonValueOptional)
def interconnect(
    json: Json = None,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions; the fastest of each kind counts.")] = 25,
    transport: Annotated[
        list[str] | None, typer.Option(help="Also measure this one of others: nixl, mooncake, dlslime. Repeatable.")
    ] = None,
) -> None:
    """KV blocks between two processes, against a plain copy and a raw socket."""
    from bench.interconnect import measure

    _answer(lambda: measure(rounds, tuple(transport or ())), json)


@app.command(cls=JsonValueOptional)
def balance(
    json: Json = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions of each workload.")] = 10,
    traces: Annotated[Path | None, typer.Option(help="Folder of CSV traces: arrival, input, output length.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that simulate.")] = 1,
    instances: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Size of the clusters with shifting phases; may be repeated.", show_default="8, 16"),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep what is done in this file, and go on from it after an interruption.")
    ] = None,
) -> None:
    """The ratio balancer in simulation: regret, goodput, flips and waiting against other policies (an hour)."""
    from bench.balance import measure

    def progress(done: int, runs: int, left_s: float) -> None:
        left = "" if math.isnan(left_s) else f", {left_s / 60:.0f} minutes to go"
        typer.echo(f"{done} of {runs} runs{left}", err=True)

    _answer(lambda: measure(seeds, traces, jobs, tuple(instances or (8, 16)), checkpoint, progress), json)


@app.command("balance-live", cls=JsonValueOptional)
def balance_live(
    json: Json = None,
    phase: Annotated[float, typer.Option(min=5, help="Seconds of each phase: prose, tables, prose.")] = 30.0,
    share: Annotated[float, typer.Option(min=0.01, max=1, help="Share of one core of each of 4 instances.")] = 0.1,
    load: Annotated[float, typer.Option(min=0.1, help="Share of what the best split for a phase carries.")] = 0.78,
    seed: Annotated[int, typer.Option(help="Of the arrivals.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions of the calibration.")] = 6,
) -> None:
    """The balancer on real instances, against fixed splits and its own simulator (9 minutes; 7 with --phase 20)."""
    from bench.balance_live import measure

    _answer(lambda: measure(phase, share, load, seed, rounds), json)


@app.command(cls=JsonValueOptional)
def engine(
    json: Json = None,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions; the median counts.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help="Measure this row only; may be repeated.")] = None,
) -> None:
    """The engine on random checkpoints: tokens and speed against transformers, graph against eager, both pools."""
    from bench.engine import measure

    _answer(lambda: measure(rounds, tuple(only or ())), json)


def _answer(measure: Callable[[], Report], json: str | None) -> NoReturn:
    """Run a bench, print its report in the form asked for, end with the exit status."""
    try:
        report = measure()
    except (FileNotFoundError, ModuleNotFoundError, UnusableCheckpoint) as missing:
        typer.echo(f"Error: {missing}", err=True)
        raise typer.Exit(USAGE) from None
    if json is None:
        from rich.console import Console

        from bench.show import show

        show(report, Console())
    else:
        sys.stdout.write(report.to_json() + "\n")
        if json != STANDARD_OUTPUT:
            Path(json).write_text(report.to_json() + "\n", "utf-8")
    raise typer.Exit(0 if report.ok else FELL_SHORT)
