"""Where a document's results go: `OUTPUT/<stem>/`, one folder for one document, whatever the names.

<stem>.md  <stem>_content_list.json  <stem>_middle.json  images/  manifest.json
.pagemill/   while it is being parsed, and after a partial result: finished pages, a lock
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import OutputBusy
from pipeline.files import typed_write_errors, write_json
from pipeline.folder_lock import FolderLock

_MAX_STEM_BYTES = 120
"""Leaves room for `_content_list.json` and a temporary suffix within the 255 bytes that file systems allow."""

_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The folder of one document."""

    path: Path

    @property
    def stem(self) -> str:
        return self.path.name

    @property
    def markdown(self) -> Path:
        return self.path / f"{self.stem}.md"

    @property
    def content_list(self) -> Path:
        return self.path / f"{self.stem}_content_list.json"

    @property
    def middle(self) -> Path:
        return self.path / f"{self.stem}_middle.json"

    @property
    def images(self) -> Path:
        return self.path / "images"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def store(self) -> Path:
        return self.path / ".pagemill"


def safe_stem(name: str) -> str:
    """A file name's stem made safe as a folder name on any system, still recognisable.

    Control characters, separators and characters that some systems forbid become `_`; leading dots and
    dashes go (hidden files, options); long names are cut and keep apart by a hash of the whole.
    """
    stem = Path(name).stem if Path(name).suffix.lower() in (".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff") else name
    clean = _NOT_IN_NAMES.sub("_", unicodedata.normalize("NFC", stem.encode("utf-8", "replace").decode("utf-8")))
    clean = clean.strip().lstrip(".-").rstrip(". ") or "document"
    if _RESERVED.fullmatch(clean):
        clean = f"_{clean}"
    if len(clean.encode("utf-8")) > _MAX_STEM_BYTES:
        digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
        clean = clean.encode("utf-8")[: _MAX_STEM_BYTES - 9].decode("utf-8", "ignore").rstrip() + "-" + digest
    return clean


@contextlib.contextmanager
def claim_folder(output: Path, input_path: Path, sha256: str) -> Iterator[OutputFolder]:
    """Hold the folder of one document for the time of the `with` block.

    The folder is `<stem>`; where that holds another document, `<stem>-<first digits of the hash>`. The same
    document, or the same path with new content, gets its old folder back. At the end the working folder
    `.pagemill` goes, unless it holds finished pages of an unfinished job.

    Raises:
        OutputBusy: another run holds it. OutputNotWritable, DiskFull: it cannot be made.
    """
    folder, lock = _first_fitting(output, input_path, sha256)
    try:
        yield folder
    finally:
        lock.release(remove=not (folder.store / "job.json").exists())
        with contextlib.suppress(OSError):
            folder.path.rmdir()  # only where nothing was written: rmdir refuses the rest


def _first_fitting(output: Path, input_path: Path, sha256: str) -> tuple[OutputFolder, FolderLock]:
    stem = safe_stem(input_path.name)
    owner = {"sha256": sha256, "path": str(input_path.resolve())}
    for name in (stem, f"{stem}-{sha256[:8]}", f"{stem}-{sha256[:16]}"):
        folder = OutputFolder(output / name)
        with typed_write_errors(folder.path):
            lock = FolderLock.acquire(folder.store)
        fits = _fits(_owner(folder), owner)
        if lock is not None and fits:
            write_json(folder.store / "owner.json", owner)
            return folder, lock
        if lock is not None:
            lock.release(remove=not (folder.store / "job.json").exists())
        elif fits:
            raise OutputBusy(f"Another run is writing {folder.path}. Wait for it, or choose another folder with -o.")
    raise OutputBusy(f"No free folder for {input_path.name} in {output}. Choose another folder with -o.")


def _owner(folder: OutputFolder) -> dict[str, str] | None:
    """Which document the folder belongs to: as claimed, or as its manifest says; None if nobody's."""
    for path, key in ((folder.store / "owner.json", None), (folder.manifest, "input")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads(path.read_text("utf-8"))
            value = value[key] if key else value
            return {"sha256": value["sha256"], "path": value["path"]}
    return None


def _fits(owner: dict[str, str] | None, wanted: dict[str, str]) -> bool:
    return owner is None or owner["sha256"] == wanted["sha256"] or owner["path"] == wanted["path"]
