"""`manifest.json`: what was parsed, with what, how each page went. Written last, so it marks a whole result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline.document import SourceDocument
from pipeline.files import write_json
from pipeline.options import ParseOptions
from pipeline.page_model import Route
from pipeline.page_store import PageRecord
from pipeline.versions import parser_versions
from pipeline.vlm_engine import configured_engine, model_name

NOTICE = "Parsed with Pagemill, which uses MinerU (https://github.com/opendatalab/MinerU)."


class Status(StrEnum):
    """How a document ended: every page, some pages, no page."""

    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one document.

    Attributes:
        status: see `Status`.
        job: what decides the result (input hash, options, versions); equal jobs give equal results.
        input: name, path, sha256 and size of the input, pages of the whole document.
        pages: one record for each page asked for, in page order.
        seconds: wall time of the run that finished it.
    """

    status: Status
    job: dict[str, Any]
    input: dict[str, Any]
    pages: tuple[PageRecord, ...]
    seconds: float

    def write(self, path: Path) -> None:
        write_json(path, self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {
            "status": str(self.status),
            "notice": NOTICE,
            "input": self.input,
            "job": self.job,
            "seconds": round(self.seconds, 3),
            # Pages count from 1 wherever a person reads them.
            "pages": [
                {"page": r.index + 1, **{k: v for k, v in r.to_json().items() if k != "index"}} for r in self.pages
            ],
        }

    @classmethod
    def read(cls, path: Path) -> Manifest | None:
        """The manifest at `path`, or None where there is none that can be read."""
        try:
            value = json.loads(path.read_text("utf-8"))
            pages = tuple(
                PageRecord.from_json({"index": p["page"] - 1, **{k: v for k, v in p.items() if k != "page"}})
                for p in value["pages"]
            )
            return cls(Status(value["status"]), value["job"], value["input"], pages, value["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def describe_job(sha256: str, options: ParseOptions) -> dict[str, Any]:
    """What decides a document's result: its bytes, the options, the versions of what reads it.

    Where an engine may read pages of it, its model too. That is asked for where the settings do not name it, so
    this may take some seconds once.
    """
    job: dict[str, Any] = {
        "sha256": sha256,
        "options": options.fingerprint(),
        "versions": parser_versions(),
    }
    engine = configured_engine() if options.route in (Route.AUTO, Route.VLM) else None
    if engine is not None:
        job["engine"] = {"model": model_name(engine)}
    return job


def describe_input(path: Path, source: SourceDocument) -> dict[str, Any]:
    return {
        "name": path.name,
        "path": str(path.resolve()),
        "sha256": source.sha256,
        "size_bytes": source.size_bytes,
        "kind": str(source.kind),
        "page_count": source.page_count,
    }
