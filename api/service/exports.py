"""Results that are put together when they are first asked for: a zip of everything, one JSON object of the text."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import BinaryIO

from api.service.schemas import NOTICE
from workers.artifacts import ArtifactInfo, ArtifactNotFound, ArtifactStore, ArtifactWriter

_COPY_BYTES = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a zip, so that equal results are equal bytes."""

_STORED = (".jpg", ".jpeg", ".png", ".webp")


def result_key(job_key: str, name: str) -> str:
    return f"jobs/{job_key}/result/{name}"


def export(store: ArtifactStore, job_key: str, suffix: str) -> ArtifactInfo:
    """The `zip` or the `json` of a finished job; made unless it is there already. Blocks while it is made.

    Its key holds the tag of the manifest, which is written last: a result made anew gets a new export.

    Raises:
        ArtifactNotFound: the job has no result.
    """
    manifest = store.info(result_key(job_key, "manifest.json"))
    version = hashlib.sha256(manifest.tag.encode()).hexdigest()[:16]
    key = f"jobs/{job_key}/exports/{version}.{suffix}"
    try:
        return store.info(key)
    except ArtifactNotFound:
        pass
    with store.writer() as writer:
        {"zip": _write_zip, "json": _write_json}[suffix](store, job_key, writer)
        return writer.commit(key)


def _write_zip(store: ArtifactStore, job_key: str, writer: ArtifactWriter) -> None:
    prefix = result_key(job_key, "")
    with zipfile.ZipFile(_Unseekable(writer), "w", zipfile.ZIP_DEFLATED) as archive:
        for artifact in store.list(prefix):
            member = zipfile.ZipInfo(artifact.key.removeprefix(prefix), _EPOCH)
            member.external_attr = 0o644 << 16
            stored = member.filename.endswith(_STORED)
            member.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            with store.open(artifact.key) as source, archive.open(member, "w", force_zip64=True) as target:
                while chunk := source.read(_COPY_BYTES):
                    target.write(chunk)


def _write_json(store: ArtifactStore, job_key: str, writer: ArtifactWriter) -> None:
    """notice, manifest, content_list, markdown: the first two parts as they lie in the store, never all in memory."""
    writer.write(f'{{"notice": {json.dumps(NOTICE)}, "manifest": '.encode())
    _copy(store, result_key(job_key, "manifest.json"), writer)
    writer.write(b', "content_list": ')
    _copy(store, result_key(job_key, "content_list.json"), writer)
    writer.write(b', "markdown": "')
    with io.TextIOWrapper(store.open(result_key(job_key, "document.md")), "utf-8", newline="") as text:
        while piece := text.read(_COPY_BYTES):
            writer.write(json.dumps(piece, ensure_ascii=False)[1:-1].encode("utf-8"))
    writer.write(b'"}')


def _copy(store: ArtifactStore, key: str, writer: ArtifactWriter) -> None:
    source: BinaryIO
    with store.open(key) as source:
        while chunk := source.read(_COPY_BYTES):
            writer.write(chunk)


class _Unseekable(io.RawIOBase):
    """What `zipfile` writes to: it cannot go back, so that the archive streams into the store."""

    def __init__(self, writer: ArtifactWriter) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._writer.write(bytes(data))
        return len(data)
