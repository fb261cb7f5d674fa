"""Writing files so that a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import DiskFull, OutputNotWritable


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by a file with these bytes.

    Raises:
        DiskFull, OutputNotWritable: nothing was replaced, and no temporary file is left.
    """
    with typed_write_errors(path):
        handle, temporary = _new_file(path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _new_file(folder: Path) -> tuple[int, str]:
    """Open a temporary file in a folder that is nearly always there."""
    try:
        return tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")


def write_json(path: Path, value: Any, *, indent: int | None = 2) -> None:
    """`write_atomic` of a JSON value, UTF-8."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8", "replace"))


@contextlib.contextmanager
def typed_write_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write at `path` into errors that say what to do."""
    try:
        yield
    except OSError as error:
        full = DiskFull.if_caused_by(error)
        if full is not None:
            raise full from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG):
            raise OutputNotWritable(
                f"Cannot write to {path} ({error.strerror}). Choose another folder with -o, or change its permissions."
            ) from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
