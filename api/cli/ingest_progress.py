"""Progress over the files and pages of a folder: a bar on a terminal, plain lines anywhere else. On stderr."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from workers.ingest import FileEnded, FileOpened, FilePages, FileState, IngestEvent, Listed

_PLAIN_EVERY_SECONDS = 5.0
_COLOURS = {FileState.FAILED: "red", FileState.PARTIAL: "yellow"}


class IngestReporter(AbstractContextManager["IngestReporter"]):
    """Shows events as they come; each failure at once, successes only as a count."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._files = self._ended = self._failed = self._pages = self._pages_known = 0
        self._started = self._said = time.monotonic()
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[unit]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._file_task = self._bar.add_task("listing", total=None, unit="files")
            self._page_task = self._bar.add_task("", total=None, unit="pages")

    def __enter__(self) -> IngestReporter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: IngestEvent) -> None:
        if isinstance(event, Listed):
            self._files += event.to_do
            if event.to_do or not self._ended:
                self._print(f"{event.found} files found, {event.to_do} to parse")
        elif isinstance(event, FileOpened):
            self._pages_known += event.pages
            self._pages += event.finished
        elif isinstance(event, FilePages):
            self._pages += event.count
        elif isinstance(event, FileEnded):
            self._ended += 1
            self._tell_of_failure(event)
        self._show()

    def _tell_of_failure(self, event: FileEnded) -> None:
        result = event.result
        if result.state is FileState.DONE:
            return
        self._failed += result.state is FileState.FAILED
        missing = f"{result.pages_failed} of {result.pages} pages failed: " if result.pages_failed else ""
        colour = _COLOURS.get(result.state, "white")
        path = escape(event.path.encode("utf-8", "replace").decode())
        self._print(
            f"[{colour}]{result.state:<8}[/{colour}] {path}: {missing}{escape(result.error or '')} "
            f"[dim]({result.error_code})[/dim]"
        )

    def _show(self) -> None:
        if self._bar is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._bar.update(
                self._file_task, description=f"parsing{failed}", total=self._files or None, completed=self._ended
            )
            self._bar.update(self._page_task, total=self._pages_known or None, completed=self._pages)
        elif time.monotonic() - self._said > _PLAIN_EVERY_SECONDS:
            rate = self._pages / (time.monotonic() - self._started)
            self._print(f"{self._ended} of {self._files} files, {self._pages} pages, {rate:.1f} pages/s")

    def _print(self, text: str) -> None:
        self._said = time.monotonic()
        (self._bar.console if self._bar is not None else self._console).print(text, soft_wrap=True)
