"""Results that were made elsewhere, put into a document's folder as a parse on this machine would leave them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from pipeline.files import typed_write_errors, write_json
from pipeline.output import OutputFolder, claim_folder
from workers.ingest.errors import ServerUnavailable

_IMAGE = re.compile(r"images/[A-Za-z0-9_][A-Za-z0-9._-]*")

Part = tuple[str, BinaryIO]
"""A file of a result, by the name that it has in a job's `result/`, and its bytes."""


def publish(file: Path, output: Path, sha256: str, parts: Iterable[Part]) -> OutputFolder:
    """Write a result to the folder of `file` below `output`. The manifest goes first and comes last.

    Names that a result does not have are ignored, so that nothing is written beside the folder.

    Args:
        sha256: of the input, hex.
        parts: document.md, content_list.json, middle.json, manifest.json and images/..., in any order.

    Raises:
        OutputBusy, OutputNotWritable, DiskFull: nothing was replaced, or the result counts as not there.
        ServerUnavailable: a part is missing.
    """
    with claim_folder(output, file, sha256) as folder:
        incoming = folder.store / "incoming"
        try:
            _receive(incoming, parts)
            for name in ("document.md", "content_list.json", "middle.json", "manifest.json"):
                if not (incoming / name).is_file():
                    raise ServerUnavailable(f"The result of {file.name} came without its {name}.")
            folder.manifest.unlink(missing_ok=True)
            with typed_write_errors(folder.path):
                shutil.rmtree(folder.images, ignore_errors=True)
                os.replace(incoming / "images", folder.images)
                os.replace(incoming / "content_list.json", folder.content_list)
                os.replace(incoming / "middle.json", folder.middle)
                os.replace(incoming / "document.md", folder.markdown)
            _publish_manifest(incoming / "manifest.json", file, folder)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        return folder


def _receive(incoming: Path, parts: Iterable[Part]) -> None:
    shutil.rmtree(incoming, ignore_errors=True)
    with typed_write_errors(incoming):
        (incoming / "images").mkdir(parents=True)
        for name, source in parts:
            known = name in ("document.md", "content_list.json", "middle.json", "manifest.json")
            if known or _IMAGE.fullmatch(name):
                with contextlib.closing(source), (incoming / name).open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)


def _publish_manifest(received: Path, file: Path, folder: OutputFolder) -> None:
    """Name the file as it is called here; where it was parsed it had another path."""
    manifest = json.loads(received.read_text("utf-8"))
    manifest["input"] = {**manifest["input"], "name": file.name, "path": str(file.resolve())}
    write_json(folder.manifest, manifest)
