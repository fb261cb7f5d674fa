"""What every artifact store can do, and which store a URL means."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from pipeline.errors import TooLarge
from workers.artifacts.errors import ArtifactError, BadArtifactKey

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_MAX_KEY_CHARACTERS = 800
"""S3 allows 1,024 bytes, of which the prefix of the store's URL takes some."""


@dataclass(frozen=True, slots=True)
class ArtifactInfo:
    """One artifact.

    Attributes:
        key: its name in the store.
        size: bytes.
        modified: when it was written last, UTC.
        tag: changes when the bytes do; fits an HTTP ETag. Opaque, and different from store to store.
    """

    key: str
    size: int
    modified: datetime
    tag: str


class ArtifactStore(Protocol):
    """Bytes by key. Thread-safe; calls block, so that an event loop wraps them in `asyncio.to_thread`.

    Every write is atomic: a reader sees the old bytes or the new ones, and a writer that dies leaves nothing
    under the key. Every method raises `BadArtifactKey` for a key that is not one, and
    `ArtifactStoreUnavailable` where a service behind it does not answer.
    """

    def put(self, key: str, source: bytes | Path | BinaryIO) -> None:
        """Write an artifact, replacing the one that is there. A file object is read from where it stands.

        Raises:
            DiskFull, OutputNotWritable: nothing was written.
        """

    def take_all(self, files: Sequence[tuple[str, Path]]) -> None:
        """Make several files artifacts, in less time than one by one. The last is there only once all others are.

        The files are given away: they may be gone afterwards.

        Raises:
            DiskFull, OutputNotWritable: some may have been written.
        """

    def writer(self, *, max_bytes: int | None = None) -> ArtifactWriter:
        """Begin a write whose key is known only at its end, such as one by content hash."""

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Read from byte `start` up to `end` (exclusive; None for all that follow). Close it; it may not be seekable.

        Raises:
            ArtifactNotFound: it is not there.
        """

    def fetch(self, key: str) -> Path:
        """A local file with the bytes, not to be changed: the artifact itself in a folder, else a cached copy.

        Raises:
            ArtifactNotFound: it is not there.
        """

    def info(self, key: str) -> ArtifactInfo:
        """Size, time and tag of an artifact.

        Raises:
            ArtifactNotFound: it is not there.
        """

    def exists(self, key: str) -> bool:
        """True if there is an artifact of this key."""

    def size(self, key: str) -> int:
        """Bytes of an artifact. Raises ArtifactNotFound."""

    def list(self, prefix: str = "") -> Iterator[ArtifactInfo]:
        """Every artifact whose key begins with `prefix`, by key. What comes or goes meanwhile may be missed."""

    def delete(self, key: str) -> None:
        """Remove an artifact; no error where there is none."""

    def delete_if_unchanged(self, artifact: ArtifactInfo) -> bool:
        """Remove an artifact unless it was written again since `artifact` was read; False if it was."""

    def delete_prefix(self, prefix: str) -> int:
        """Remove every artifact whose key begins with `prefix` and say how many that were."""

    def sweep(self, older_than: datetime) -> int:
        """Remove what interrupted writes left before that time, and local copies not used since; say how many."""

    def check(self) -> None:
        """Return if the store answers and takes our credentials; a folder, if it can be written. For readiness probes.

        Raises:
            ArtifactError: it does not.
        """


class ArtifactWriter(Protocol):
    """A write in progress. Use it in a `with`: leaving it without `commit` leaves nothing.

    Not thread-safe, but calls may come from different threads one after the other.
    """

    @property
    def size(self) -> int:
        """Bytes so far."""

    @property
    def sha256(self) -> str:
        """Hash of the bytes so far, hexadecimal."""

    def write(self, chunk: bytes) -> None:
        """Add bytes.

        Raises:
            TooLarge: they go over `max_bytes`. DiskFull: no room.
        """

    def commit(self, key: str | Callable[[str], str]) -> ArtifactInfo:
        """Make the bytes an artifact: under `key`, or under what `key` makes of their SHA-256."""

    def __enter__(self) -> ArtifactWriter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class HashingLimit:
    """Running SHA-256 and size of a write, with a bound; what every writer shares."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self.size = 0

    def add(self, chunk: bytes) -> None:
        """Count a chunk. Raises TooLarge before more than the bound has been taken."""
        if self._max_bytes is not None and self.size + len(chunk) > self._max_bytes:
            raise TooLarge(
                f"The file is larger than the limit of {self._max_bytes / 2**20:.0f} MiB. "
                "Split it, or allow more with PAGEMILL_MAX_FILE_MB."
            )
        self._digest.update(chunk)
        self.size += len(chunk)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def artifact_store(url: str | Path, *, cache: Path | None = None) -> ArtifactStore:
    """The store that a URL means. Nothing is written until the first `put`.

    Args:
        url: a folder (`/var/lib/pagemill/artifacts`, `file:///var/lib/...`) or
            `s3://bucket/prefix?endpoint=https://host&region=eu-central-1`.
        cache: where copies of remote artifacts go, for `fetch` and uploads in progress; None for a folder of
            the system's temporary one. A folder store needs none.

    Raises:
        ArtifactError: the URL means no store, or the package for it is not installed.
    """
    parts = urlsplit(str(url))
    if isinstance(url, Path) or parts.scheme == "":
        return _folder(Path(url))
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return _folder(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        from workers.artifacts.s3 import S3Store

        return S3Store.from_url(str(url), cache=cache)
    raise ArtifactError(f"{parts.scheme}:// is no artifact store. Give a folder, file:///folder or s3://bucket/prefix.")


def _folder(path: Path) -> ArtifactStore:
    from workers.artifacts.folder import FolderStore

    return FolderStore(path.expanduser())


def check_key(key: str) -> str:
    """The key, if it is a relative path of plain names: letters, digits, `.`, `_`, `-`, none hidden.

    Raises:
        BadArtifactKey: it is not, so that no key can leave the store's root.
    """
    if len(key) > _MAX_KEY_CHARACTERS or not all(_NAME.fullmatch(name) for name in key.split("/")):
        raise BadArtifactKey(f"Not an artifact key: {key[:100]!r}")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix, if some key can begin with it: empty, a key, or a key and `/`. Raises BadArtifactKey."""
    if prefix:
        check_key(prefix.removesuffix("/"))
    return prefix
