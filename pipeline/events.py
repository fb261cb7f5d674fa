"""What a parse reports while it runs, in the order in which it happens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.manifest import Manifest, Status
from pipeline.page_store import PageRecord


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A finished document.

    Attributes:
        input: the path that was parsed.
        folder: where its files are.
        markdown_path: its Markdown.
        manifest: how each page went.
        unchanged: True if an earlier run had already finished it and nothing was parsed.
    """

    input: Path
    folder: Path
    markdown_path: Path
    manifest: Manifest
    unchanged: bool = False

    @property
    def status(self) -> Status:
        return self.manifest.status

    @property
    def pages(self) -> tuple[PageRecord, ...]:
        return self.manifest.pages

    @property
    def markdown(self) -> str:
        return self.markdown_path.read_text("utf-8")


@dataclass(frozen=True, slots=True)
class DocumentOpened:
    """Preflight passed. `pages` is how many were asked for, `resumed` how many an earlier run had finished."""

    input: Path
    folder: Path
    pages: int
    resumed: int


@dataclass(frozen=True, slots=True)
class PageFinished:
    """A page was recognised and stored, or given up (`record.ok` tells)."""

    input: Path
    record: PageRecord


@dataclass(frozen=True, slots=True)
class DocumentFinished:
    """All files are written."""

    document: ParsedDocument


Event = DocumentOpened | PageFinished | DocumentFinished
