"""Which files of a folder are to be parsed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workers.ingest.errors import IngestError
from workers.ingest.types import SourceFile

SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff"})


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files are meant.

    Attributes:
        recursive: folders below too. Links to folders are not followed, so that there are no circles.
        globs: patterns such as `*.pdf` or `2026/*.pdf`, matched from the right; empty for every PDF and picture.
            Hidden files and folders are always left out.
    """

    recursive: bool = False
    globs: tuple[str, ...] = ()

    def takes(self, path: str) -> bool:
        """Whether a file of this path, below the source folder, is meant."""
        pure = PurePosixPath(path)
        if any(part.startswith(".") for part in pure.parts):
            return False
        if self.globs:
            return any(pure.match(pattern) for pattern in self.globs)
        return pure.suffix.lower() in SUFFIXES


def scan(source: Path, selection: Selection, leave_out: Path) -> Iterator[SourceFile]:
    """Every regular file of the selection, by path; and a problem for each folder that cannot be entered.

    Args:
        leave_out: a folder that is not entered: where the results go.

    Raises:
        IngestError: the source folder itself cannot be read.
    """
    if not source.is_dir():
        raise IngestError(f"{source} is no folder. Give the folder that holds the documents.")
    problems: list[OSError] = []
    excluded = leave_out.resolve()
    for folder, below, names in os.walk(source, onerror=problems.append):
        below[:] = sorted(
            name
            for name in below
            if selection.recursive and not name.startswith(".") and Path(folder, name).resolve() != excluded
        )
        prefix = Path(folder).relative_to(source).as_posix()
        for name in sorted(names):
            path = name if prefix == "." else f"{prefix}/{name}"
            if selection.takes(path):
                yield from _look_at(os.path.join(folder, name), path)
        yield from _unreadable(problems, source)
    yield from _unreadable(problems, source)


def _look_at(full: str, path: str) -> Iterator[SourceFile]:
    try:
        status = os.stat(full)
    except FileNotFoundError:
        if os.path.islink(full):
            yield SourceFile(path, 0, 0, "It is a link to a file that does not exist.")
        return  # else it went away during the scan
    except OSError as error:
        yield SourceFile(path, 0, 0, f"It cannot be read: {error.strerror}.")
        return
    # A pipe or a device may have a document's name; opening it would wait for ever.
    if stat.S_ISREG(status.st_mode):
        yield SourceFile(path, status.st_size, status.st_mtime_ns)


def _unreadable(problems: list[OSError], source: Path) -> Iterator[SourceFile]:
    for error in problems:
        folder = Path(error.filename)
        if folder == source:
            raise IngestError(f"{source} cannot be read: {error.strerror}.") from error
        path = folder.relative_to(source).as_posix()
        yield SourceFile(f"{path}/", 0, 0, f"The folder cannot be entered: {error.strerror}.")
    problems.clear()
