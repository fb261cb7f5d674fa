"""Batches from a folder of the service's machine: only below the configured root, wherever links lead."""

from __future__ import annotations

import fnmatch
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

from api.service.names import safe_file_name
from api.service.problems import NotFound, PayloadTooLarge, ServiceError
from api.service.schemas import ErrorInfo, SkippedFile
from api.service.settings import ApiSettings
from api.service.uploads import UploadedFile
from pipeline.errors import BadInput, UnreadableFile
from pipeline.settings import settings as pipeline_settings
from workers.artifacts import ArtifactStore, receive_file

_READERS = 4
"""Files copied at the same time: most of it is waiting for the disk."""
_ENDINGS = (".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff")


def find_files(settings: ApiSettings, directory: str, recursive: bool, glob: str | None) -> list[Path]:
    """The files of a folder that look like documents (or that fit `glob`), by path. Links are not followed.

    Raises:
        ServiceError: not_configured, forbidden (outside the root), not_found, payload_too_large (too many).
    """
    if settings.batch_root is None:
        raise ServiceError("Batches from folders are off: set PAGEMILL_BATCH_ROOT.", code="not_configured")
    root = settings.batch_root.resolve()
    if "\0" in directory:
        raise ServiceError("The folder's name holds a NUL.", code="forbidden")
    folder = (root / directory).resolve()
    if not folder.is_relative_to(root):
        raise ServiceError("The folder is outside of PAGEMILL_BATCH_ROOT.", code="forbidden")
    if not folder.is_dir():
        raise NotFound(f"There is no folder {directory!r} below PAGEMILL_BATCH_ROOT.")
    found: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if recursive else []
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and _wanted(name, glob) and path.is_file() and not path.is_symlink():
                found.append(path)
        if len(found) > settings.max_batch_files:
            raise PayloadTooLarge(f"The folder has more than {settings.max_batch_files:,} files.")
    return found


def take_in(artifacts: ArtifactStore, paths: list[Path]) -> tuple[list[UploadedFile], list[SkippedFile]]:
    """Copy the files into the artifact store, in their order; and those that cannot be, with the reason."""
    with ThreadPoolExecutor(_READERS, thread_name_prefix="batch") as threads:
        ends = list(threads.map(partial(_take_in, artifacts), paths))
    taken = [end for end in ends if isinstance(end, UploadedFile)]
    return taken, [end for end in ends if isinstance(end, SkippedFile)]


def _take_in(artifacts: ArtifactStore, path: Path) -> UploadedFile | SkippedFile:
    name = safe_file_name(path.name)
    try:
        with _open(path) as source:
            received = receive_file(artifacts, source, max_bytes=pipeline_settings().max_file_mb * 2**20)
    except BadInput as error:
        return SkippedFile(name=name, error=ErrorInfo(code=error.code, message=error.message))
    return UploadedFile(name, received.sha256, received.size)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UnreadableFile(f"Cannot read the file: {error.strerror or error}.") from None


def _wanted(name: str, glob: str | None) -> bool:
    return fnmatch.fnmatch(name, glob) if glob else name.lower().endswith(_ENDINGS)
