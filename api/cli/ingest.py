"""`pagemill ingest DIR -o OUT`."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.exit_codes import ExitCode
from api.cli.parse import QualityChoice, RouteChoice

if TYPE_CHECKING:
    from pipeline import ParseOptions
    from workers.ingest import Ingestion, Summary
    from workers.ingest.types import Backend


def ingest(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Folder of documents; may be left out with --resume.", show_default=False),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the results; it mirrors the folders of DIR.")
    ] = Path("out"),
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Take the folders below DIR too.")] = False,
    glob: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only files that fit, as in '*.pdf' or '2026/*.pdf'; may be repeated."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and parse what is added or changed, until Ctrl-C.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the last run into OUT, with its folder, patterns and options."),
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try files again that failed or lack pages.")
    ] = False,
    redis: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Let the workers at this broker do the work (and PAGEMILL_DATABASE_URL)."),
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Let a running service do the work, over its REST API.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="PAGEMILL_API_KEY", show_envvar=True, help="Key for --server.")
    ] = None,
    in_flight: Annotated[
        int, typer.Option(min=1, max=256, help="Files under way at a time with --server or --redis.")
    ] = 16,
    route: Annotated[RouteChoice, typer.Option(help="How pages are read; see `pagemill parse`.")] = RouteChoice.auto,
    password: Annotated[
        str | None,
        typer.Option(help="Password of encrypted PDFs.", envvar="PAGEMILL_PASSWORD", show_envvar=True),
    ] = None,
    quality: Annotated[QualityChoice, typer.Option(help="OCR models; see `pagemill parse`.")] = QualityChoice.standard,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Pages read at the same time, here.", show_default="one for each CPU")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Parse again what is already done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one summary object on standard output.")] = False,
) -> None:
    """Parse every PDF and picture of a folder.

    All files are listed first. What happens to each is kept in OUT/.pagemill-ingest, so that the same command
    goes on after any interruption and skips what has not changed. One bad file never stops the others; failures
    are listed in OUT/.pagemill-ingest/failures.jsonl. At the end: found = done + failed + skipped.

    Exit codes: 0 done, 2 usage, 3 bad input only, 4 partial (some pages failed), 5 failed, 130 interrupted.
    """
    from pipeline import PipelineError
    from workers.ingest import Ingestion, Selection

    if directory is None and not resume:
        raise typer.BadParameter("Give the folder that holds the documents, or --resume.", param_hint="DIR")
    if redis and server:
        raise typer.BadParameter("Give --redis or --server, not both.", param_hint="--server")
    again = resume and directory is None
    selection = None if again else Selection(recursive, tuple(glob or ()))
    options = None if again else _options(route, password, quality, force)
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with Ingestion(directory, output, selection, options) as ingestion:
            backend = _backend(ingestion, redis, server, api_key, in_flight, workers)
            try:
                summary = _run(ingestion, backend, retry_failed=retry_failed, watch=watch)
            finally:
                backend.close()
    except PipelineError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(ExitCode.FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    code = _exit_code(summary, watch)
    if as_json:
        typer.echo(json.dumps({**summary.to_json(), "exit_code": int(code)}, indent=2))
    else:
        _print(summary)
    raise typer.Exit(code)


def _options(route: RouteChoice, password: str | None, quality: QualityChoice, force: bool) -> ParseOptions:
    from pipeline import ParseOptions, Quality, Route

    return ParseOptions(route=Route(route.value), password=password, quality=Quality(quality.value), force=force)


def _backend(
    ingestion: Ingestion,
    redis: str | None,
    server: str | None,
    api_key: str | None,
    in_flight: int,
    workers: int | None,
) -> Backend:
    if server:
        from workers.ingest.remote import RemoteBackend

        return RemoteBackend(server, ingestion.options, ingestion.identity(), key=api_key, slots=in_flight)
    if redis:
        from workers.ingest.queued import QueuedBackend
        from workers.settings import ServiceSettings

        return QueuedBackend(ServiceSettings(redis_url=redis), ingestion.options, ingestion.identity(), slots=in_flight)
    from workers.ingest.local import LocalBackend

    return LocalBackend(ingestion.options, workers)


def _run(ingestion: Ingestion, backend: Backend, *, retry_failed: bool, watch: bool) -> Summary:
    from api.cli.ingest_progress import IngestReporter

    with IngestReporter() as report:
        changes = _changes(ingestion) if watch else None
        return ingestion.run(backend, report, retry_failed=retry_failed, changes=changes)


def _changes(ingestion: Ingestion) -> Iterator[bool]:
    from workers.ingest.watch import changes

    return changes(ingestion.source, ingestion.selection, threading.Event())


def _as_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _exit_code(summary: Summary, watch: bool) -> ExitCode:
    if summary.interrupted and not (watch and summary.left == 0):
        return ExitCode.INTERRUPTED
    if summary.failed:
        return ExitCode.BAD_INPUT if summary.failed == summary.bad_input else ExitCode.FAILED
    return ExitCode.PARTIAL if summary.partial else ExitCode.DONE


def _print(summary: Summary) -> None:
    parts = [f"{summary.done} done"]
    if summary.partial:
        parts[0] += f" ({summary.partial} partial)"
    parts.append(f"{summary.failed} failed" + (" (earlier)" if summary.failed == summary.failed_earlier > 0 else ""))
    parts.append(f"{summary.skipped} skipped, unchanged")
    if summary.left:
        parts.append(f"{summary.left} left")
    typer.echo(f"{summary.found} found: {', '.join(parts)}; {summary.pages} pages in {summary.seconds:.1f} s", err=True)
    if summary.failed or summary.partial:
        typer.echo(f"What failed is listed in {summary.failures}; --retry-failed tries it again.", err=True)
    if summary.interrupted and summary.left:
        typer.echo("Interrupted. Run the same command again to go on.", err=True)
