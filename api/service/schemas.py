"""The bodies of answers, as OpenAPI describes them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

NOTICE = "Parsed with Pagemill, which uses MinerU (https://github.com/opendatalab/MinerU)."

_DOCUMENT_ID = "doc_0198f2c61e7b7d2f9a0b5c3d4e6f7a8b"


class ResultFormat(StrEnum):
    """What `result` can give: Markdown; everything in one JSON object; MinerU's content list and middle JSON; a zip."""

    MD = "md"
    JSON = "json"
    CONTENT_LIST = "content_list"
    MIDDLE = "middle"
    ZIP = "zip"


class ErrorInfo(BaseModel):
    """Why something failed. `code` is stable; docs/operations.md gives the cure for each."""

    code: str
    message: str


class Options(BaseModel):
    """How a document is parsed."""

    route: str
    pages: str
    quality: str
    force: bool


class PageStatus(BaseModel):
    """How one page stands. `page` counts from 1 in the whole document."""

    page: int
    state: str = Field(description="queued, done or failed.")
    route: str | None = None
    why: str | None = Field(None, description="Reason for the route.")
    seconds: float | None = None
    warnings: list[str] = []
    error: ErrorInfo | None = None


class Links(BaseModel):
    """Paths of what belongs to a document, relative to the service."""

    self: str
    events: str
    pages: str = Field(description="Put the page's number for `{n}`.")
    result: str


class DocumentStatus(BaseModel):
    """Where a document is."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": _DOCUMENT_ID,
                "name": "report.pdf",
                "state": "running",
                "created_at": "2026-03-01T09:00:00Z",
                "started_at": "2026-03-01T09:00:01Z",
                "finished_at": None,
                "size_bytes": 183201,
                "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "priority": 0,
                "batch": None,
                "options": {"route": "auto", "pages": "", "quality": "standard", "force": False},
                "page_count": 12,
                "pages_total": 12,
                "pages_done": 5,
                "pages_failed": 0,
                "queue_position": None,
                "error": None,
                "pages": [{"page": 1, "state": "done", "route": "flash", "why": "sound text layer", "seconds": 0.1}],
                "links": {
                    "self": f"/v1/documents/{_DOCUMENT_ID}",
                    "events": f"/v1/documents/{_DOCUMENT_ID}/events",
                    "pages": f"/v1/documents/{_DOCUMENT_ID}/pages/{{n}}",
                    "result": f"/v1/documents/{_DOCUMENT_ID}/result",
                },
            }
        }
    )

    id: str
    name: str
    state: str = Field(
        description="queued, preparing, running, assembling, done, partial, failed, cancelling or cancelled."
    )
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    size_bytes: int
    sha256: str
    priority: int
    batch: str | None = None
    options: Options
    page_count: int | None = Field(None, description="Pages of the whole file; null until it is opened.")
    pages_total: int | None = Field(None, description="Pages asked for; null until the document is opened.")
    pages_done: int
    pages_failed: int
    expired: bool = Field(False, description="Its results were removed by age or by the size budget.")
    queue_position: int | None = Field(
        None, description="1 for the next one to begin; 0 once it is begun, null at its end."
    )
    error: ErrorInfo | None = None
    pages: list[PageStatus] | None = Field(None, description="Left out of lists.")
    links: Links


class Submitted(BaseModel):
    """The accepted documents, in the order of the files."""

    documents: list[DocumentStatus]


class DocumentList(BaseModel):
    """Newest first. `next_cursor` leads to the next page of the list; null at its end."""

    documents: list[DocumentStatus]
    next_cursor: str | None = None


class SkippedFile(BaseModel):
    """A file of a folder that could not be taken in."""

    name: str
    error: ErrorInfo


class BatchStatus(BaseModel):
    """A batch: counts by state. `finished` once every document of it is."""

    id: str
    name: str
    created_at: datetime
    total: int
    finished: bool
    counts: dict[str, int] = Field(description="Documents by state; states without any are left out.")
    documents: str = Field(description="Path of the list of its documents.")
    skipped: list[SkippedFile] = Field([], description="Only in the answer to its submission.")


class DirectoryBatch(BaseModel):
    """A folder to parse, below the service's configured root."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"directory": "2026/march", "recursive": True, "glob": "*.pdf"}}
    )

    directory: str = Field(max_length=4096, description="Relative to PAGEMILL_BATCH_ROOT; `.` is the root itself.")
    recursive: bool = Field(True, description="Take the folders below it too.")
    glob: str | None = Field(None, max_length=200, description="Only files whose name fits, as in `*.pdf`.")
    name: str = Field("", max_length=200, description="Shown with the batch; the directory if empty.")
    route: str = "auto"
    pages: str = Field("", max_length=1000)
    quality: str = "standard"
    force: bool = False
    priority: int = Field(0, ge=-100, le=100)
    webhook: str | None = Field(None, max_length=2000)


class PageResult(BaseModel):
    """A finished page. Boxes of blocks are in unit coordinates of the upright page, origin top left."""

    page: int
    route: str | None
    why: str
    seconds: float
    warnings: list[str]
    width_pt: float = Field(description="Of the upright page, points.")
    height_pt: float
    rotation: int = Field(description="Quarter turns that made the page upright, degrees clockwise.")
    markdown: str
    blocks: list[dict[str, Any]] = Field(
        description="MinerU's page model, in reading order: `type`, `bbox`, `content`; `image` is a path of a picture."
    )


class EngineInfo(BaseModel):
    """The engine behind the route vlm."""

    model: str | None = Field(description="Null while the engine does not say.")


class Info(BaseModel):
    """What runs here."""

    product: str
    notice: str
    versions: dict[str, str | None]
    routes: list[str]
    formats: list[str]
    limits: dict[str, int | float]
    authentication: bool
    engine: EngineInfo | None = Field(None, description="Null where none is configured.")


class Health(BaseModel):
    status: str


class Check(BaseModel):
    """One thing that the service needs."""

    ok: bool
    detail: str


class Readiness(BaseModel):
    ready: bool
    checks: dict[str, Check]
