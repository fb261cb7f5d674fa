"""`pagemill parse FILE... -o DIR`."""

from __future__ import annotations

import json
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.exit_codes import ExitCode, exit_code

if TYPE_CHECKING:
    from api.cli.batch import Outcome


class RouteChoice(StrEnum):
    auto = "auto"
    flash = "flash"
    layout = "layout"
    ocr = "ocr"
    vlm = "vlm"


class QualityChoice(StrEnum):
    standard = "standard"
    high = "high"


def parse(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="PDF, PNG, JPEG or TIFF files.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the results; each document gets its own folder in it.")
    ] = Path("out"),
    route: Annotated[
        RouteChoice,
        typer.Option(
            help="How pages are read. auto: decided page by page. flash: MinerU's flash tier. layout: the page's "
            "own text and drawing, put in order. ocr: text from the picture. vlm: by a document model behind an engine."
        ),
    ] = RouteChoice.auto,
    pages: Annotated[str, typer.Option(help="Which pages, as in 1-5,9,20-", metavar="RANGE")] = "",
    password: Annotated[
        str | None,
        typer.Option(help="Password of an encrypted PDF.", envvar="PAGEMILL_PASSWORD", show_envvar=True),
    ] = None,
    quality: Annotated[
        QualityChoice, typer.Option(help="OCR models: high is about three times slower and a little better.")
    ] = QualityChoice.standard,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Pages read at the same time.", show_default="one for each CPU")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Server of a document model with OpenAI's API, for the route vlm.  [env var: PAGEMILL_ENGINE_URL]",
            metavar="URL",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Parse again what is already done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one summary object on standard output.")] = False,
) -> None:
    """Parse PDFs and images into Markdown and JSON.

    Each document goes to DIR/<name>/: <name>.md, <name>_content_list.json, <name>_middle.json, images/ and
    manifest.json, which tells for each page how it was read and why. Running the same command again skips what
    is done and goes on where an interrupted run stopped.

    Exit codes: 0 done, 2 usage, 3 bad input, 4 partial (some pages failed), 5 failed, 130 interrupted.
    """
    from api.cli.batch import parse_all
    from api.cli.progress import reporter
    from pipeline import ParseOptions, Quality, Route
    from pipeline.errors import BadPageRange
    from pipeline.page_range import check_selection

    use_engine(engine, route)
    try:
        check_selection(pages)
    except BadPageRange as error:
        raise typer.BadParameter(error.message, param_hint="--pages") from None
    options = ParseOptions(
        route=Route(route.value), pages=pages, password=password, quality=Quality(quality.value), force=force
    )
    distinct = list({file.absolute(): file for file in files}.values())
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with reporter(len(distinct)) as report:
            outcomes = parse_all(distinct, output, options, workers, report)
    except KeyboardInterrupt:
        typer.echo("Interrupted. Finished pages are kept: run the same command again to go on.", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(_summary(outcomes), ensure_ascii=False, indent=2))
    raise typer.Exit(exit_code(outcomes))


def use_engine(url: str | None, route: RouteChoice) -> None:
    """Make the engine of the command line that of the settings, and see that the route vlm has one.

    Raises:
        typer.BadParameter: the address is none, or there is none.
    """
    import os

    from pydantic import ValidationError

    from pipeline.errors import RouteUnavailable
    from pipeline.settings import settings
    from pipeline.vlm_engine import required_engine

    if url is not None:
        # Into the environment, so that page processes have it too.
        os.environ["PAGEMILL_ENGINE_URL"] = url
        settings.cache_clear()
    try:
        settings()
        if route is RouteChoice.vlm:
            required_engine()
    except ValidationError as error:
        if any(found["loc"] == ("engine_url",) for found in error.errors()):
            raise typer.BadParameter("Write it as http://host:port.", param_hint="--engine") from None
        raise
    except RouteUnavailable as error:
        raise typer.BadParameter(error.message, param_hint="--route") from None


def _as_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _summary(outcomes: list[Outcome]) -> dict[str, Any]:
    documents = [_summarise(outcome) for outcome in outcomes]
    return {
        "documents": documents,
        "counts": {s: sum(d["status"] == s for d in documents) for s in ("done", "partial", "failed")},
        "exit_code": int(exit_code(outcomes)),
    }


def _summarise(outcome: Outcome) -> dict[str, Any]:
    if outcome.error is not None:
        return {
            "input": str(outcome.input),
            "status": "failed",
            "error": {"code": outcome.error.code, "message": outcome.error.message},
        }
    document = outcome.document
    assert document is not None
    bad = [record for record in document.pages if not record.ok]
    routes = [str(record.route) for record in document.pages if record.route]
    return {
        "input": str(outcome.input),
        "status": str(document.status),
        "unchanged": document.unchanged,
        "folder": str(document.folder),
        "markdown": str(document.markdown_path),
        "pages": len(document.pages),
        "pages_failed": [{"page": r.index + 1, "code": r.error_code, "message": r.error} for r in bad],
        "routes": {route: routes.count(route) for route in sorted(set(routes))},
        "seconds": round(document.manifest.seconds, 3),
        "error": {"code": bad[0].error_code, "message": bad[0].error}
        if bad and len(bad) == len(routes + bad)
        else None,
    }
