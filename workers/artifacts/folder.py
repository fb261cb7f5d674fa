"""Artifacts in a folder: a key is a path below it. Also over NFS, for several machines."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO
from uuid import uuid4

from pipeline.files import typed_write_errors
from workers.artifacts.base import ArtifactInfo, ArtifactWriter, HashingLimit, check_key, check_prefix
from workers.artifacts.errors import ArtifactError, ArtifactNotFound
from workers.artifacts.ranges import FileRange

_WORKING = ".working"
"""Holds writes in progress: on the same file system as their destination, and no key can name it."""

_COPY_BYTES = 1 << 20
_REPLACE_ATTEMPTS = 100

_FEW = 3
_disk = ThreadPoolExecutor(8, thread_name_prefix="disk")
"""Waits for the disk, for all stores of the process."""


class FolderStore:
    """An `ArtifactStore` below `root`. What is written is on the disk (fsync) before a call returns."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def put(self, key: str, source: bytes | Path | BinaryIO) -> None:
        check_key(key)
        with self.writer() as writer:
            if isinstance(source, bytes):
                writer.write(source)
            elif isinstance(source, Path):
                with source.open("rb") as file:
                    _copy(file, writer)
            else:
                _copy(source, writer)
            writer.commit(key)

    def take_all(self, files: Sequence[tuple[str, Path]]) -> None:
        """Moves them. Waits for the disk twice, not twice for each file: what is asked for at once, it writes at once.

        On another file system than the store's they are copied.
        """
        for key, _ in files:
            check_key(key)
        with typed_write_errors(self.root):
            _at_once([partial(_settle, source) for _, source in files])
            for key, source in files:
                self._move_in(key, source)
            _at_once([partial(_sync_folder, folder) for folder in {self.path(key).parent for key, _ in files}])

    def _move_in(self, key: str, source: Path) -> None:
        try:
            _replace(source, self.path(key))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self.put(key, source)

    def writer(self, *, max_bytes: int | None = None) -> ArtifactWriter:
        return _FolderWriter(self, max_bytes)

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        with self._reading(key) as path:
            return FileRange.of(path, start, end)

    def fetch(self, key: str) -> Path:
        with self._reading(key) as path:
            return path

    def info(self, key: str) -> ArtifactInfo:
        with self._reading(key) as path:
            return _info(key, path.stat())

    def exists(self, key: str) -> bool:
        return self.path(key).is_file()

    def size(self, key: str) -> int:
        return self.info(key).size

    def list(self, prefix: str = "") -> Iterator[ArtifactInfo]:
        folder, _, _ = check_prefix(prefix).rpartition("/")
        for info in self._walk(self.root / folder, f"{folder}/" if folder else ""):
            if info.key.startswith(prefix):
                yield info

    def delete(self, key: str) -> None:
        path = self.path(key)
        path.unlink(missing_ok=True)
        self._remove_empty(path.parent)

    def delete_if_unchanged(self, artifact: ArtifactInfo) -> bool:
        path = self.path(artifact.key)
        aside = self._working() / f"{uuid4().hex}.removed"
        try:
            if _info(artifact.key, path.stat()).tag != artifact.tag:
                return False
            # Moved away, and looked at again: a writer that comes now makes a new file, and one that came between
            # the two lines is noticed.
            os.rename(path, aside)
        except FileNotFoundError:
            return False
        unchanged = _info(artifact.key, aside.stat()).tag == artifact.tag
        if unchanged:
            aside.unlink()
            self._remove_empty(path.parent)
        else:
            _put_back(aside, path)
        return unchanged

    def delete_prefix(self, prefix: str) -> int:
        count = 0
        for info in self.list(prefix):
            self.delete(info.key)
            count += 1
        return count

    def sweep(self, older_than: datetime) -> int:
        count = 0
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / _WORKING) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < older_than.timestamp():
                        os.unlink(entry.path)
                        count += 1
        return count

    def check(self) -> None:
        try:
            with self.writer() as writer:
                writer.write(b"\0")
        except OSError as error:
            raise ArtifactError(f"The artifact folder {self.root} cannot be written: {error.strerror}.") from error

    def path(self, key: str) -> Path:
        """Where an artifact is or would be."""
        return self.root / check_key(key)

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[Path]:
        """The path, which is that of a file, and what it means if it goes away meanwhile."""
        path = self.path(key)
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise IsADirectoryError
            yield path
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise ArtifactNotFound(f"There is no artifact {key}.") from None

    def _walk(self, folder: Path, prefix: str) -> Iterator[ArtifactInfo]:
        """Everything below, by key: a folder sorts as its name and `/`, as the keys below it do."""
        try:
            with os.scandir(folder) as scan:
                entries = sorted((f"{e.name}/" if e.is_dir() else e.name, e) for e in scan if e.name[0] != ".")
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, entry in entries:
            if name.endswith("/"):
                yield from self._walk(Path(entry.path), prefix + name)
            else:
                with contextlib.suppress(FileNotFoundError):
                    yield _info(prefix + name, entry.stat())

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder and those above it while they are empty, below the root."""
        with contextlib.suppress(OSError):
            while folder != self.root:
                folder.rmdir()
                folder = folder.parent

    def _working(self) -> Path:
        return self.root / _WORKING


class _FolderWriter:
    """Writes a hidden file and renames it into place."""

    def __init__(self, store: FolderStore, max_bytes: int | None) -> None:
        self._store = store
        self._counted = HashingLimit(max_bytes)
        with typed_write_errors(store.root):
            handle, name = _new_file(store._working())
        self._path = Path(name)
        self._file = os.fdopen(handle, "wb")

    @property
    def size(self) -> int:
        return self._counted.size

    @property
    def sha256(self) -> str:
        return self._counted.sha256

    def write(self, chunk: bytes) -> None:
        self._counted.add(chunk)
        with typed_write_errors(self._store.root):
            self._file.write(chunk)

    def commit(self, key: str | Callable[[str], str]) -> ArtifactInfo:
        key = key if isinstance(key, str) else key(self.sha256)
        destination = self._store.path(key)
        self.settle()
        with typed_write_errors(self._store.root):
            self.place(key)
            _sync_folder(destination.parent)
        return _info(key, destination.stat())

    def settle(self) -> None:
        """Have the bytes on the disk, still under no key."""
        with typed_write_errors(self._store.root):
            self._file.flush()
            os.fchmod(self._file.fileno(), 0o640)
            os.fsync(self._file.fileno())
            self._file.close()

    def place(self, key: str) -> None:
        """Give what is settled its key."""
        _replace(self._path, self._store.path(key))

    def __enter__(self) -> _FolderWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)


def _new_file(folder: Path) -> tuple[int, str]:
    """Open a temporary file in a folder that is nearly always there."""
    try:
        return tempfile.mkstemp(dir=folder, suffix=".part")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.mkstemp(dir=folder, suffix=".part")


def _settle(path: Path) -> None:
    """Have the bytes of a file on the disk, readable to the service's group."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o640)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _at_once(calls: Sequence[Callable[[], None]]) -> None:
    """Make calls that wait for the disk beside each other. Raises what one of them raises, after all have ended.

    Of few calls each is made in turn: handing them to other threads would cost more than it saves on most disks.
    """
    if len(calls) <= _FEW:
        for call in calls:
            call()
        return
    waited = wait([_disk.submit(call) for call in calls])
    for done in waited.done:
        done.result()


def _copy(source: BinaryIO, writer: ArtifactWriter) -> None:
    while chunk := source.read(_COPY_BYTES):
        writer.write(chunk)


def _replace(source: Path, destination: Path) -> None:
    for attempt in range(_REPLACE_ATTEMPTS):
        try:
            return os.replace(source, destination)
        except FileNotFoundError:
            # A new folder; or a deletion removed one on the way while it was empty.
            if attempt == _REPLACE_ATTEMPTS - 1 or not source.exists():
                raise
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            destination.parent.mkdir(parents=True, exist_ok=True)
    return None


def _put_back(aside: Path, path: Path) -> None:
    """Move a file back, unless there is a newer one by now."""
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not path.exists():
            return os.replace(aside, path)
    return aside.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a loss of power. The folder may have gone by now."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _info(key: str, status: os.stat_result) -> ArtifactInfo:
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return ArtifactInfo(key, status.st_size, modified, f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}")
