"""`pagemill jobs ls|show|cancel|retry`: the documents of a service, by its database or over its REST API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from api.cli.job_access import JobAccess

app = typer.Typer(help="Look at the documents of a service; cancel them or try them again.", no_args_is_help=True)

Database = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="Job store.", show_default="as the settings say")
]
Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="A running service, asked over REST.")]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="PAGEMILL_API_KEY", show_envvar=True, help="Key for --server.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Documents, as `pagemill jobs ls` shows them.")]


class State(StrEnum):
    queued = "queued"
    preparing = "preparing"
    running = "running"
    assembling = "assembling"
    done = "done"
    partial = "partial"
    failed = "failed"
    cancelling = "cancelling"
    cancelled = "cancelled"


@app.command("ls")
def list_jobs(
    state: Annotated[State | None, typer.Option(help="Only documents in this state.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="Only documents of this batch.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most documents to show, newest first.")] = 50,
    database: Database = None,
    server: Server = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List documents, newest first."""
    with _access(database, server, api_key) as access:
        documents = list(access.list(state.value if state else None, batch, limit))
    if as_json:
        typer.echo(json.dumps({"documents": documents}, ensure_ascii=False, indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("id", "state", "pages", "created", "name", box=None, pad_edge=False)
    for document in documents:
        table.add_row(
            document["id"], document["state"], _pages(document), _when(document["created_at"]), escape(document["name"])
        )
    Console(highlight=False, width=None if typer.get_text_stream("stdout").isatty() else 200).print(table)


@app.command("show")
def show_job(
    document_id: Annotated[str, typer.Argument(metavar="ID", help="A document.")],
    database: Database = None,
    server: Server = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Show one document and its pages."""
    with _access(database, server, api_key) as access:
        document = access.show(document_id)
    if as_json:
        typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for name in ("id", "name", "state", "batch", "priority", "size_bytes", "sha256", "queue_position"):
        if document.get(name) not in (None, ""):
            typer.echo(f"{name:<15} {document[name]}")
    for name in ("created_at", "started_at", "finished_at"):
        if document.get(name):
            typer.echo(f"{name:<15} {_when(document[name])}")
    typer.echo(f"{'pages':<15} {_pages(document)}")
    if document.get("error"):
        typer.echo(f"{'error':<15} {document['error']['message']} ({document['error']['code']})")
    for page in document.get("pages") or ():
        error = page.get("error")
        said = f"{error['message']} ({error['code']})" if error else page.get("why") or ""
        typer.echo(f"  page {page['page']:<5} {page['state']:<8} {page.get('route') or '-':<8} {said}")


@app.command("cancel")
def cancel_jobs(ids: Ids, database: Database = None, server: Server = None, api_key: ApiKey = None) -> None:
    """Stop documents. One that is finished stays as it is."""
    with _access(database, server, api_key) as access:
        _each(ids, access.cancel)


@app.command("retry")
def retry_jobs(ids: Ids, database: Database = None, server: Server = None, api_key: ApiKey = None) -> None:
    """Try documents again that failed, are partial or were cancelled. Finished pages are kept."""
    with _access(database, server, api_key) as access:
        _each(ids, access.retry)


def _each(ids: list[str], action: Any) -> None:
    """Do it to every document; one that is refused does not stop the others."""
    from api.cli.job_access import JobRefused

    refused = False
    for document_id in ids:
        try:
            typer.echo(f"{document_id}  {action(document_id)['state']}")
        except JobRefused as error:
            refused = True
            typer.echo(f"{document_id}  {error} ({error.code})", err=True)
    if refused:
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def _access(database: str | None, server: str | None, api_key: str | None) -> Iterator[JobAccess]:
    from api.cli.job_access import JobRefused, open_access

    if database and server:
        raise typer.BadParameter("Give --database or --server, not both.", param_hint="--server")
    try:
        with open_access(database, server, api_key) as access:
            yield access
    except JobRefused as error:
        typer.echo(f"{error} ({error.code})", err=True)
        raise typer.Exit(ExitCode.FAILED) from None


def _pages(document: dict[str, Any]) -> str:
    if document.get("pages_total") is None:
        return "-"
    failed = f", {document['pages_failed']} failed" if document.get("pages_failed") else ""
    return f"{document['pages_done']} of {document['pages_total']}{failed}"


def _when(text: str) -> str:
    """A time of the service in this machine's zone."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
