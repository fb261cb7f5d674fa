"""What crosses the borders of an ingestion."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol


class FileState(StrEnum):
    """What is known about a file, for as long as it does not change."""

    PENDING = "pending"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as a scan found it.

    Attributes:
        path: below the source folder, with `/`. Names that are no UTF-8 keep their bytes as surrogates.
        size: bytes.
        mtime_ns: time of its last change.
        problem: why it cannot be read, for a folder that the scan could not enter.
    """

    path: str
    size: int
    mtime_ns: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A file that is to be parsed.

    Attributes:
        id: its row in the manifest.
        file: where it is.
        output: the folder in which the document gets its own folder.
        document_id: of an earlier run's submission that may still be under way.
        attempt: counts from 1; the same again after an interruption.
        version: changes when the file or the options do.
    """

    id: int
    path: str
    file: Path
    output: Path
    document_id: str | None
    attempt: int
    version: str


@dataclass(frozen=True, slots=True)
class FileResult:
    """How a file ended.

    Attributes:
        folder: of its results; None if there are none.
        unchanged: True if the same bytes had been parsed before and nothing was done.
        bad_input: True if the file itself is at fault.
    """

    state: FileState
    folder: Path | None = None
    pages: int = 0
    pages_failed: int = 0
    unchanged: bool = False
    error_code: str | None = None
    error: str | None = None
    bad_input: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """The scan is through: so many files, of which so many are to be parsed."""

    found: int
    to_do: int


@dataclass(frozen=True, slots=True)
class FileOpened:
    """A file's pages are known; `finished` of them an earlier run had done."""

    path: str
    pages: int
    finished: int


@dataclass(frozen=True, slots=True)
class FilePages:
    """So many more pages of a file have been finished."""

    path: str
    count: int


@dataclass(frozen=True, slots=True)
class FileEnded:
    """A file is done, or failed."""

    path: str
    result: FileResult


IngestEvent = Listed | FileOpened | FilePages | FileEnded
Report = Callable[[IngestEvent], None]


class Backend(Protocol):
    """Gets files parsed. Called by as many threads at a time as `slots` says."""

    slots: int

    def process(
        self, item: WorkItem, report: Report, submitted: Callable[[str], None], cancelled: threading.Event
    ) -> FileResult:
        """Parse one file and put its results below `item.output`; blocks until it has ended.

        Args:
            report: told of FileOpened and FilePages.
            submitted: told the document's id, where it is given away, so that a later run finds it again.
            cancelled: set when the run is to stop.

        Raises:
            Cancelled: it was stopped. PipelineError: it failed. IngestError: no file can be parsed any more.
        """

    def close(self) -> None:
        """Let go of what it holds. Called once, after the last `process`."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The count of one run: found = done + failed + skipped + left.

    Attributes:
        found: files that the scan found, and folders that it could not enter.
        done: parsed in this run, `partial` of them without some of their pages.
        failed: not parsed, in this run or unchanged since an earlier one (`failed_earlier` of them).
        skipped: unchanged since they were parsed.
        left: not reached, because the run was interrupted.
        bad_input: of `failed`: the file itself is at fault.
        pages: finished in this run.
        gone: known from earlier runs, not there any more; their results are kept.
        failures: file that lists what failed or lacks pages, one JSON object a line.
    """

    found: int
    done: int
    partial: int
    failed: int
    failed_earlier: int
    skipped: int
    left: int
    bad_input: int
    pages: int
    gone: int
    seconds: float
    failures: Path
    interrupted: bool = False

    @property
    def reconciles(self) -> bool:
        return self.found == self.done + self.failed + self.skipped + self.left

    def to_json(self) -> dict[str, Any]:
        names = (
            "found",
            "done",
            "partial",
            "failed",
            "failed_earlier",
            "skipped",
            "left",
            "bad_input",
            "pages",
            "gone",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "seconds": round(self.seconds, 3),
            "reconciles": self.reconciles,
            "interrupted": self.interrupted,
            "failures": str(self.failures),
        }
