"""What an ingestion knows about every file: an SQLite file, written before the work and after each file.

It outlives any crash: a row is pending until its result is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline.files import typed_write_errors, write_atomic
from workers.ingest.errors import PASSING, IngestError
from workers.ingest.types import FileResult, FileState, SourceFile, Summary

_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    options TEXT NOT NULL,
    state TEXT NOT NULL,
    run INTEGER NOT NULL,
    outcome TEXT,
    folder BLOB,
    document_id TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,
    pages_failed INTEGER NOT NULL DEFAULT 0,
    error_code TEXT,
    error TEXT,
    bad_input INTEGER NOT NULL DEFAULT 0,
    ended_at REAL
);
CREATE INDEX IF NOT EXISTS files_by_run ON files (run, outcome);
"""
_VERSION = 1

DONE, FAILED, FAILED_EARLIER, SKIPPED = "done", "failed", "failed_earlier", "skipped"
"""Outcomes: how a file counts in the run that it was last seen in."""


class IngestManifest:
    """The manifest in a folder. Thread-safe; one process at a time (see `run`)."""

    def __init__(self, folder: Path) -> None:
        """Open or make it.

        Raises:
            OutputNotWritable, DiskFull: the folder cannot be written.
            IngestError: the file there is none of ours, or a newer version's.
        """
        self.folder = folder
        self.failures = folder / "failures.jsonl"
        path = folder / "manifest.db"
        with typed_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise IngestError(f"{path} was written by a newer version. Use that, or another output folder.")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.Error as error:
            raise IngestError(
                f"{path} cannot be used ({error}). Remove {folder} to begin anew: what is done is not parsed again."
            ) from error
        self._lock = threading.Lock()

    def setting(self, name: str) -> Any:
        """A remembered value, or None."""
        with self._lock:
            row = self._db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def remember(self, name: str, value: Any) -> None:
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(value)))

    def begin_run(self) -> int:
        """The number of a new run."""
        with self._transaction() as db:
            number = 1 + int((db.execute("SELECT value FROM settings WHERE name = 'run'").fetchone() or ["0"])[0])
            db.execute("INSERT OR REPLACE INTO settings VALUES ('run', ?)", (str(number),))
            return number

    def list_files(
        self,
        run: int,
        files: Iterable[SourceFile],
        options: str,
        *,
        retry_failed: bool,
        force: bool,
        has_result: Callable[[Path], bool],
        ready: Callable[[SourceFile], bool] = lambda file: True,
    ) -> int:
        """Write down what a scan found, in one transaction, and say how many files that was.

        A file that is as it was keeps its state: done ones are skipped if their result is still there, failed
        ones stay failed unless they are to be tried again. All others become pending.

        Args:
            options: what the results depend on beside the files, as text.
            retry_failed: failed and partial files become pending.
            force: all files become pending.
            has_result: whether the folder of a result still holds one.
            ready: False for a file that is left for a later scan, since it may still be being written.
        """
        count = 0
        with self._transaction() as db:
            for file in files:
                if not ready(file):
                    continue
                count += 1
                key = os.fsencode(file.path)
                row = db.execute(
                    "SELECT id, size, mtime_ns, options, state, folder, bad_input, error_code, run, outcome FROM files "
                    "WHERE path = ?",
                    (key,),
                ).fetchone()
                same = row is not None and row[1:4] == (file.size, file.mtime_ns, options)
                state, outcome = FileState.PENDING, None
                if file.problem is not None:
                    state, outcome = FileState.FAILED, FAILED
                elif same and row[8] == run and row[9] is not None:
                    state, outcome = FileState(row[4]), row[9]  # of this very run, seen by an earlier scan of it
                elif same and not force:
                    folder = Path(os.fsdecode(row[5])) if row[5] is not None else None
                    there = folder is not None and has_result(folder)
                    state, outcome = _standing(FileState(row[4]), there, row[7], retry_failed)
                if same:
                    db.execute(
                        "UPDATE files SET run = ?, state = ?, outcome = ?, "
                        "document_id = CASE WHEN ? AND state = 'failed' THEN NULL ELSE document_id END WHERE id = ?",
                        (run, state, outcome, state is FileState.PENDING, row[0]),
                    )
                else:
                    db.execute(
                        "INSERT INTO files (path, size, mtime_ns, options, state, run, outcome) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET size = excluded.size, "
                        "mtime_ns = excluded.mtime_ns, options = excluded.options, state = excluded.state, "
                        "run = excluded.run, outcome = excluded.outcome, document_id = NULL, attempts = 0, "
                        "pages = 0, pages_failed = 0, error_code = NULL, error = NULL, bad_input = 0, ended_at = NULL",
                        (key, file.size, file.mtime_ns, options, state, run, outcome),
                    )
                if file.problem is not None:
                    db.execute(
                        "UPDATE files SET error_code = 'unreadable_file', error = ?, bad_input = 1, ended_at = ? "
                        "WHERE path = ?",
                        (file.problem, time.time(), key),
                    )
        return count

    def pending(self, run: int) -> list[tuple[int, str, str | None, int, str]]:
        """(id, path, document_id, attempts that ended, version) of what this run has to do, by path."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, path, document_id, attempts, size, mtime_ns, options FROM files "
                "WHERE run = ? AND outcome IS NULL ORDER BY path",
                (run,),
            ).fetchall()
        return [(row[0], os.fsdecode(row[1]), row[2], row[3], f"{row[4]}-{row[5]}-{row[6]}") for row in rows]

    def submitted(self, file_id: int, document_id: str) -> None:
        """The file was given to a service, which knows it under that id."""
        with self._transaction() as db:
            db.execute("UPDATE files SET document_id = ? WHERE id = ?", (document_id, file_id))

    def ended(self, file_id: int, result: FileResult) -> None:
        """The file is through, its result complete."""
        outcome = FAILED if result.state is FileState.FAILED else SKIPPED if result.unchanged else DONE
        folder = os.fsencode(result.folder) if result.folder is not None else None
        with self._transaction() as db:
            db.execute(
                "UPDATE files SET attempts = attempts + 1, state = ?, outcome = ?, folder = ?, pages = ?, "
                "pages_failed = ?, error_code = ?, error = ?, bad_input = ?, ended_at = ? WHERE id = ?",
                (
                    result.state,
                    outcome,
                    folder,
                    result.pages,
                    result.pages_failed,
                    result.error_code,
                    result.error,
                    result.bad_input,
                    time.time(),
                    file_id,
                ),
            )

    def summary(self, run: int, seconds: float) -> Summary:
        """Count a run."""
        with self._lock:
            rows = self._db.execute(
                "SELECT outcome, state, count(*), sum(bad_input), sum(pages - pages_failed) FROM files WHERE run = ? "
                "GROUP BY outcome, state",
                (run,),
            ).fetchall()
            gone = self._db.execute("SELECT count(*) FROM files WHERE run < ?", (run,)).fetchone()[0]

        def total(column: int, *outcomes: str | None, state: str | None = None) -> int:
            return sum(row[column] for row in rows if row[0] in outcomes and state in (None, row[1]))

        return Summary(
            found=sum(row[2] for row in rows),
            done=total(2, DONE),
            partial=total(2, DONE, state=FileState.PARTIAL),
            failed=total(2, FAILED, FAILED_EARLIER),
            failed_earlier=total(2, FAILED_EARLIER),
            skipped=total(2, SKIPPED),
            left=total(2, None),
            bad_input=total(3, FAILED, FAILED_EARLIER),
            pages=total(4, DONE),
            gone=gone,
            seconds=seconds,
            failures=self.failures,
        )

    def write_failures(self, run: int) -> None:
        """Write every file of the run that failed or lacks pages to `failures.jsonl`, one JSON object a line."""
        with self._lock:
            rows = self._db.execute(
                "SELECT path, state, error_code, error, pages, pages_failed, attempts, ended_at FROM files "
                "WHERE run = ? AND state IN ('failed', 'partial') ORDER BY path",
                (run,),
            ).fetchall()
        lines = [
            json.dumps(
                {
                    "path": os.fsdecode(path).encode("utf-8", "backslashreplace").decode(),
                    "state": state,
                    "code": code,
                    "message": error,
                    "pages": pages,
                    "pages_failed": pages_failed,
                    "attempts": attempts,
                    "at": ended_at and round(ended_at, 3),
                },
                ensure_ascii=False,
            )
            for path, state, code, error, pages, pages_failed, attempts, ended_at in rows
        ]
        write_atomic(self.failures, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise IngestError(
                        f"The manifest in {self.folder} cannot be written ({error}). "
                        "Run the same command again once that is mended."
                    ) from error
                raise


def _standing(
    state: FileState, result_there: bool, code: str | None, retry_failed: bool
) -> tuple[FileState, str | None]:
    """State and outcome, at the start of a run, of a file that has not changed."""
    if state is FileState.FAILED and not retry_failed and code not in PASSING:
        return state, FAILED_EARLIER
    if result_there and (state is FileState.DONE or (state is FileState.PARTIAL and not retry_failed)):
        return state, SKIPPED
    return FileState.PENDING, None
