"""What a long bench has measured so far, one JSON object a line, so that one that was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class UnusableCheckpoint(ValueError):
    """The file is of other code, or is no checkpoint."""


class Checkpoint:
    """Results by key in a file that only grows. A last line cut off by an interruption is measured again.

    The file belongs to one state of the code: results of another one would be mixed in unseen.
    """

    def __init__(self, path: Path | None, code: str) -> None:
        """Args:
            path: the file, made when the first result is there; None keeps nothing.
            code: names the state of the code, as `code_of` does.

        Raises:
            UnusableCheckpoint: the file was written by other code, or is no checkpoint.
        """
        self._path, self._code = path, code
        self._found: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def get(self, key: str) -> dict[str, Any] | None:
        """What is known under `key`."""
        return self._found.get(key)

    def put(self, key: str, result: dict[str, Any]) -> None:
        """Keep a JSON-ready result. It is on disk when this returns."""
        self._found[key] = result
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"code": self._code, "key": key, "result": result}) + "\n")

    def _read(self, path: Path) -> None:
        content = path.read_text("utf-8")
        whole = content[: content.rfind("\n") + 1]
        try:
            entries = [json.loads(line) for line in whole.splitlines()]
            found = {entry["key"]: entry["result"] for entry in entries}
            codes = {entry["code"] for entry in entries}
        except (ValueError, TypeError, KeyError):
            raise UnusableCheckpoint(f"{path} is not a checkpoint") from None
        if codes - {self._code}:
            raise UnusableCheckpoint(f"{path} was measured with other code: give another file, or delete it")
        if whole != content:
            path.write_text(whole, "utf-8")
        self._found = found


def code_of(files: Iterable[Path]) -> str:
    """A hash over the content of source files."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
