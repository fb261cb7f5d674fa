"""Progress over pages: a bar with rate and time left on a terminal, plain lines anywhere else. On stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from api.cli.batch import Outcome
from pipeline import DocumentFinished, DocumentOpened, Event, PageFinished, Status

_PLAIN_EVERY_SECONDS = 5.0


class Reporter(Protocol):
    """Shows events as they come."""

    def __enter__(self) -> Reporter: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __call__(self, event: Event | Outcome) -> None: ...


def reporter(files: int) -> Reporter:
    """The reporter that fits where stderr goes."""
    console = Console(stderr=True, highlight=False)
    return _Bar(console, files) if console.is_terminal else _Lines(console)


def describe(outcome: Outcome) -> str:
    """How one document ended, as one line of rich markup."""
    name = escape(outcome.input.name)
    if outcome.error is not None:
        return f"[red]failed[/red]   {name}: {escape(outcome.error.message)} [dim]({outcome.error.code})[/dim]"
    document = outcome.document
    assert document is not None
    where = escape(str(document.markdown_path))
    if document.unchanged:
        return f"[green]done[/green]     {name}: already parsed, nothing to do -> {where} [dim](--force to redo)[/dim]"
    bad = [record for record in document.pages if not record.ok]
    if document.status is Status.DONE:
        return f"[green]done[/green]     {name}: {_pages(len(document.pages))} -> {where}"
    lines = [
        f"[yellow]{document.status:<8}[/yellow] {name}: {len(bad)} of {_pages(len(document.pages))} failed -> {where}"
    ]
    lines += [f"           page {r.index + 1}: {escape(r.error or '')} [dim]({r.error_code})[/dim]" for r in bad[:10]]
    if len(bad) > 10:
        lines.append(f"           ... and {len(bad) - 10} more, all in manifest.json")
    return "\n".join(lines)


def _pages(count: int) -> str:
    return f"{count} page" if count == 1 else f"{count} pages"


class _Rate(ProgressColumn):
    """Pages a second since the start."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f} pages/s" if speed else "", style="dim")


class _Bar:
    """One bar over the pages of all documents that have been opened."""

    def __init__(self, console: Console, files: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("pages"),
            _Rate(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("opening", total=None)
        self._files, self._ended, self._total = files, 0, 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event | Outcome) -> None:
        if isinstance(event, DocumentOpened):
            self._total += event.pages
            self._progress.update(self._task, total=self._total, advance=event.resumed)
        elif isinstance(event, PageFinished):
            self._progress.update(self._task, advance=1)
        elif isinstance(event, Outcome):
            self._ended += 1
            self._progress.console.print(describe(event))
        done = f" ({self._ended} of {self._files} files)" if self._files > 1 else ""
        self._progress.update(self._task, description=f"parsing{done}")


class _Lines:
    """A line when a document is opened, every few seconds, and when it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pages: dict[str, list[int]] = {}
        self._last = time.monotonic()

    def __enter__(self) -> _Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __call__(self, event: Event | Outcome) -> None:
        if isinstance(event, Outcome):
            self._console.print(describe(event), soft_wrap=True)
        elif isinstance(event, DocumentOpened):
            self._pages[str(event.input)] = [event.resumed, event.pages]
            resumed = f", {event.resumed} of them already done" if event.resumed else ""
            self._console.print(f"parsing  {escape(event.input.name)}: {_pages(event.pages)}{resumed}", soft_wrap=True)
        elif isinstance(event, PageFinished):
            count = self._pages[str(event.input)]
            count[0] += 1
            if time.monotonic() - self._last > _PLAIN_EVERY_SECONDS:
                self._last = time.monotonic()
                self._console.print(f"         {escape(event.input.name)}: {count[0]} of {count[1]}", soft_wrap=True)
        else:
            assert isinstance(event, DocumentFinished)
