"""A part of a file as a file of its own."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO, cast


class FileRange(io.RawIOBase):
    """Reads bytes `start` to `end` (exclusive) of a file; positions count from `start`."""

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        self._file, self._start, self._end = file, start, max(start, end)
        file.seek(start)

    @classmethod
    def of(cls, path: Path, start: int = 0, end: int | None = None) -> BinaryIO:
        """Open a file, or a part of it. An `end` beyond the file's end means the file's end."""
        file = path.open("rb")
        if start == 0 and end is None:
            return file
        size = file.seek(0, io.SEEK_END)
        return cast(BinaryIO, io.BufferedReader(cls(file, start, size if end is None else min(end, size))))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._end - self._start}[whence]
        self._file.seek(self._start + max(0, base + offset))
        return self.tell()

    def tell(self) -> int:
        return self._file.tell() - self._start

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = max(0, min(len(buffer), self._end - self._file.tell()))
        data = self._file.read(wanted)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
