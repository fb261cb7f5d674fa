"""`pagemill balance ...`: the balance of prefill and decode instances, simulated or of a running router."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.balance_calibrate import calibrate
from api.cli.balance_watch import watch
from api.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from engine.balancer.costs import Costs
    from engine.balancer.simulator.experiment import SeedResult, Workload

app = typer.Typer(name="balance", no_args_is_help=True, help="How many instances prefill and how many decode.")


class PolicyChoice(StrEnum):
    ours = "ours"
    static = "static"
    even = "even"
    matching = "matching"
    threshold = "threshold"
    mixed = "mixed"
    hybrid = "hybrid"


app.command()(watch)
app.command()(calibrate)


@app.callback()
def _group() -> None:
    pass


@app.command()
def simulate(
    mix: Annotated[
        str | None,
        typer.Option(
            help="Pages by kind (prose, paper, tables, form, slide) in phases, KINDS/SECONDS[@LOAD], as in "
            "prose/60,tables/60@0.9. prose=3+tables: weighted; prose>tables: ramp; prose~tables: there and back."
        ),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="CSV with arrival, input and output length.")] = None,
    load: Annotated[
        float | None,
        typer.Option(min=0.01, help="Thicken or thin the trace to this share of what the best split carries."),
    ] = None,
    window: Annotated[
        float | None, typer.Option(min=1, help="Seconds of the trace, from a place the seed chooses.")
    ] = None,
    instances: Annotated[int, typer.Option(min=2)] = 8,
    policy: Annotated[list[PolicyChoice] | None, typer.Option(help="Repeat for several; ours always runs.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, each with its own arrivals.")] = 10,
    oracle: Annotated[int, typer.Option(min=0, help="Simulations to search the best schedule with; 0: no regret.")] = 0,
    burstiness: Annotated[float, typer.Option(min=0.05, help="1: Poisson arrivals; more: bursts.")] = 1.0,
    costs: Annotated[Path | None, typer.Option(help="Cost file; otherwise the documented guess.")] = None,
    slowdown: Annotated[float, typer.Option(min=0.01, help="Instances so many times slower than the costs say.")] = 1.0,
    plot: Annotated[
        Path | None, typer.Option(help="Write PATH.png and PATH.html of the first seed, ours; needs matplotlib.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate prefill and decode pools under a load that changes, with the balancer that production runs."""
    from engine.balancer.costs import Costs
    from engine.balancer.simulator.experiment import report, run_seed

    if (mix is None) == (trace is None):
        raise typer.BadParameter("give either --mix or --trace")
    try:
        costed = (Costs.load(costs) if costs else Costs()).slowed(slowdown) if slowdown != 1 or costs else Costs()
        workload = _workload(mix, trace, load, window, instances, costed, burstiness)
    except (OSError, ValueError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(ExitCode.USAGE) from None
    names = list(dict.fromkeys(["ours", *(choice.value for choice in policy or list(PolicyChoice))]))
    results = []
    for seed in range(seeds):
        results.append(run_seed(workload, instances, costed, seed, names, oracle))
        typer.echo(f"seed {seed + 1} of {seeds}", err=True)
    answer = {
        "workload": workload.name,
        "instances": instances,
        "duration_s": workload.duration_s,
        "costs": costed.source,
        **report(results),
    }
    if plot:
        answer["plots"] = _plot(plot, workload, results[0])
    if as_json:
        _print_json(answer)
    else:
        _print_table(answer)


def _workload(
    mix: str | None,
    trace: Path | None,
    load: float | None,
    window: float | None,
    instances: int,
    costs: Costs,
    burstiness: float,
) -> Workload:
    from engine.balancer.simulator.experiment import Workload
    from engine.balancer.simulator.mix import pages, parse_mix
    from engine.balancer.simulator.traces import read_trace, replay

    if mix is not None:
        parsed = parse_mix(mix)
        return Workload(
            mix, parsed.seconds, lambda seed: pages(parsed, instances, costs, seed, burstiness), parsed.shifts
        )
    assert trace is not None
    recorded = read_trace(trace)
    return Workload(
        trace.name,
        min(window or recorded[-1].at, recorded[-1].at) or 1.0,
        lambda seed: replay(recorded, instances, costs, seed, load, window, trace.stem),
    )


def _plot(path: Path, workload: Workload, result: SeedResult) -> list[str]:
    try:
        from engine.balancer.simulator.plot import draw
    except ModuleNotFoundError as missing:
        typer.echo(f"Error: --plot needs {missing.name}: pip install 'pagemill[balancer]'", err=True)
        raise typer.Exit(ExitCode.USAGE) from None
    outcomes = {name: o for name, o in result.outcomes.items() if name in ("ours", "static", "even")}
    return [str(written) for written in draw(path, workload, outcomes)]


def _print_json(answer: dict[str, Any]) -> None:
    import json

    from engine.balancer.simulator.experiment import jsonable

    typer.echo(json.dumps(jsonable(answer), ensure_ascii=False, indent=2))


def _print_table(answer: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{answer['workload']}, {answer['instances']} instances", title_justify="left")
    columns = {
        "goodput_jobs_s": "goodput /s",
        "attainment": "in time",
        "ttft_p50_s": "TTFT P50 s",
        "ttft_p90_s": "P90",
        "ttft_p99_s": "P99",
        "tpot_p50_s": "TPOT P50 s",
        "tpot_p90_s": "P90",
        "flips": "flips",
    }
    table.add_column("policy")
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for name, figures in answer["policies"].items():
        table.add_row(name, *(f"{figures[key]['mean']:.3g} ±{figures[key]['ci95']:.2g}" for key in columns))
    console = Console()
    console.print(table)
    if "regret" in answer:
        regret = answer["regret"]
        console.print(f"regret against the oracle: {regret['mean']:.1%} ±{regret['ci95']:.1%}", highlight=False)
