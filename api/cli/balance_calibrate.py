"""`pagemill balance calibrate`: what prompts, decode steps, transfers and changes of role cost, into a cost file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from engine.balancer.costs import Costs


def calibrate(
    out: Annotated[Path, typer.Option("--out", "-o", help="Cost file to write; JSON.")] = Path("costs.json"),
    router: Annotated[
        str | None, typer.Option(metavar="URL", help="Router of the instances to measure. It must be idle.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="PAGEMILL_ENGINE_TOKEN", help="The engine's token, if it has one.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Or: a checkpoint to start one prefill and one decode instance of, on this machine's CPU.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    cpu_share: Annotated[
        float | None,
        typer.Option(help="With --model: hold each instance to this share of one core.", min=0.001, max=1),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Largest decode batch; with --model also the slots. 0: all slots.", min=0)
    ] = 0,
    longest: Annotated[
        int, typer.Option(help="Tokens of the longest prompt; 0: 4096, or as sessions allow.", min=0)
    ] = 0,
    rounds: Annotated[int, typer.Option(help="Repetitions of each size; the median counts.", min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the costs as one JSON object.")] = False,
) -> None:
    """Measure what an engine's instances cost, and write a file for PAGEMILL_ROUTER_COSTS.

    Prompts of text and of images in growing sizes, decode steps over batch and KV, KV moved from one instance to the
    other, and a change of role and back; a least-squares fit makes of them the costs that the balancer plans with, each
    with its relative error. One prefill and one decode instance are measured; the others are taken to be like them.

    With --router nothing else may be asked of the engine meanwhile. With --model a stack is started and ended here.
    The running router goes on correcting the pace by what it sees, so a file stays good on a machine that got slower.
    Use it:  PAGEMILL_ROUTER_COSTS=costs.json pagemill router,  or  pagemill balance simulate --costs costs.json
    """
    if (router is None) == (model is None):
        raise typer.BadParameter("give either --router or --model")
    if not out.parent.is_dir():
        _fail(f"There is no folder {out.parent}.", ExitCode.USAGE)
    try:
        from engine.balancer.fit import TooFewSamples
        from engine.router.calibrate import CalibrationFailed, Effort
        from engine.router.local_stack import StackFailed
    except ModuleNotFoundError as missing:
        _fail(f"This needs {missing.name}: pip install 'pagemill[engine]'", ExitCode.USAGE)
    effort = Effort(rounds, longest=longest, batch=batch)
    try:
        costs = _of_router(router, token, effort) if router else _of_model(model, cpu_share, effort)
        costs.save(out)
    except (CalibrationFailed, StackFailed, TooFewSamples) as error:
        _fail(str(error), ExitCode.FAILED)
    except OSError as error:
        _fail(f"Cannot write {out}: {error.strerror or error}", ExitCode.FAILED)
    except KeyboardInterrupt:
        _fail("Interrupted; nothing was written.", ExitCode.INTERRUPTED)
    _show(costs, out, as_json)


def _of_router(url: str, token: str | None, effort: Any) -> Costs:
    return _measured(url, token, effort, f"measured at {url}")


def _of_model(model: Path | None, cpu_share: float | None, effort: Any) -> Costs:
    from engine.role import Role
    from engine.router.local_stack import LocalStack

    assert model is not None
    _say(f"Starting one prefill and one decode instance of {model}.")
    slots = {"max_batch_size": effort.batch} if effort.batch else {}
    roles = (Role.PREFILL, Role.DECODE)
    with LocalStack(model, roles, cpu_share=cpu_share, prefix_caching=False, **slots) as stack:
        stack.ready()
        held = f", {cpu_share:g} of one core each" if cpu_share else ""
        return _measured(stack.url, stack.token, effort, f"measured with {model.name} on this CPU{held}")


def _measured(url: str, token: str | None, effort: Any, source: str) -> Costs:
    import asyncio
    from datetime import UTC, datetime

    from engine.balancer.fit import fit
    from engine.router.calibrate import measure

    samples = asyncio.run(measure(url, token, effort, _say))
    return fit(samples, f"{source}, {datetime.now(UTC):%Y-%m-%d}")


def _show(costs: Costs, out: Path, as_json: bool) -> None:
    import json
    from dataclasses import asdict

    if as_json:
        typer.echo(json.dumps(asdict(costs), ensure_ascii=False, indent=2))
    else:
        errors = ", ".join(f"{name} {error:.1%}" for name, error in costs.error)
        typer.echo(
            f"A text token {costs.text_token_s * 1e6:.3g} µs, a visual one {costs.visual_token_s * 1e6:.3g} µs, "
            f"a request {costs.prefill_request_s * 1e3:.3g} ms; a step {costs.step_s * 1e3:.3g} ms and "
            f"{costs.step_sequence_s * 1e3:.3g} ms a sequence; a change of role {costs.flip_s:.2g} s.\n"
            f"Relative error of the fits: {errors}.\n"
            f"Written to {out}. Use it: PAGEMILL_ROUTER_COSTS={out.resolve()} pagemill router"
        )


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _fail(message: str, code: ExitCode) -> Any:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(code)
