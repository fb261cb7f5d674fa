"""A lock on a folder that goes away with the folder's working files and dies with its holder.

Lock-file libraries leave their file behind, since removing one is a race: a second run may have opened the
file just before it was removed, and hold a lock that a third run cannot see. Here every holder checks, after
locking, that the file it locked is still the one that the name leads to.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path


class FolderLock:
    """Holds `folder/lock`. Get one with `FolderLock.acquire`; POSIX `flock`, so it ends with the process."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, folder: Path) -> FolderLock | None:
        """Make the folder if it is missing and lock it; None if someone else holds it.

        Raises:
            OSError: the folder or its lock file cannot be made.
        """
        path = folder / "lock"
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except FileNotFoundError:
                continue  # the last holder removed the folder in between
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            try:
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    return cls(folder, descriptor)
            except FileNotFoundError:
                pass
            os.close(descriptor)

    def release(self, *, remove: bool = False) -> None:
        """Let go; with `remove`, after removing the folder and all in it."""
        if remove:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._descriptor)
