"""The finished pages of one document, on disk: what a restart need not do again.

    FOLDER/job.json           what the pages were made of; another input or other options empty the store
    FOLDER/pages/00001.json   one page: its record and its page model
    FOLDER/pages/00001.md     its Markdown by itself, where that was asked for
    FOLDER/images/            the pictures cut out of the pages

Page files are written whole and renamed into place, so a page is there or it is not.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.files import typed_write_errors, write_atomic, write_json
from pipeline.page_model import Block, PageModel, Route

_DATA_URI = re.compile(r"data:image/(?P<type>[a-z+.-]+);base64,(?P<data>[A-Za-z0-9+/=\s]+)")


@dataclass(frozen=True, slots=True)
class PageRecord:
    """How one page went.

    Attributes:
        index: 0-based.
        route: the route that made the page; None where no route got that far.
        why: the reason for the route.
        seconds: of work on the page.
        warnings: what a reader should know, one sentence each.
        error_code, error: set if the page failed, else None.
    """

    index: int
    route: Route | None
    why: str
    seconds: float
    warnings: tuple[str, ...] = ()
    error_code: str | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error_code is None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PageRecord:
        route = value["route"]
        return cls(**{**value, "route": Route(route) if route else None, "warnings": tuple(value["warnings"])})


class PageStore:
    """Reads and writes the store in `folder`. Safe for one writer per page and any number of readers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, job: dict[str, Any]) -> None:
        """Make the store one for `job`: keep pages that an interrupted run of the same job left, drop others."""
        marker = self.folder / "job.json"
        try:
            same = json.loads(marker.read_text("utf-8")) == job
        except (OSError, ValueError):
            same = False
        if not same:
            self.clear()
            write_json(marker, job)
        with typed_write_errors(self.folder):
            for name in ("pages", "images"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)

    def save(self, record: PageRecord, page: PageModel) -> None:
        """Write a finished page. Its pictures move from the blocks into files."""
        blocks = [
            self._without_data_uris(block, f"page-{record.index + 1:04d}-{n}") for n, block in enumerate(page.blocks)
        ]
        value = {
            "record": record.to_json(),
            "page": {
                "blocks": blocks,
                "width_pt": page.width_pt,
                "height_pt": page.height_pt,
                "rotation": page.rotation,
            },
        }
        write_json(self._page_file(record.index), value, indent=None)

    def save_markdown(self, index: int, text: str) -> None:
        """Write the Markdown of a finished page."""
        write_atomic(self._page_file(index).with_suffix(".md"), text.encode("utf-8", "replace"))

    def load(self, index: int) -> tuple[PageRecord, PageModel]:
        """Read a finished page. Its visual blocks name their files as `image_path`, relative to the store.

        Raises:
            KeyError: the page is not there.
        """
        try:
            value = json.loads(self._page_file(index).read_text("utf-8"))
        except (OSError, ValueError):
            raise KeyError(index) from None
        return PageRecord.from_json(value["record"]), PageModel(**value["page"])

    def records(self) -> Iterator[PageRecord]:
        """The records of all finished pages, in page order."""
        for path in sorted((self.folder / "pages").glob("*.json")):
            yield self.load(int(path.stem) - 1)[0]

    def clear(self) -> None:
        if self.folder.exists():
            with typed_write_errors(self.folder):
                for name in ("pages", "images"):
                    shutil.rmtree(self.folder / name, ignore_errors=True)
                (self.folder / "job.json").unlink(missing_ok=True)

    def _page_file(self, index: int) -> Path:
        return self.folder / "pages" / f"{index + 1:05d}.json"

    def _without_data_uris(self, block: Block, name: str) -> Block:
        """The block with its picture, and pictures inside its HTML, stored as files."""
        block = dict(block)
        uri = block.pop("image_base64", None)
        if uri and (path := self._store_data_uri(uri, name)):
            block["image_path"] = path
        content = block.get("content")
        if isinstance(content, str) and "data:image/" in content:
            numbers = iter(range(10_000))
            block["content"] = _DATA_URI.sub(
                lambda match: self._store_data_uri(match.group(0), f"{name}-{next(numbers)}") or "", content
            )
        return block

    def _store_data_uri(self, uri: str, name: str) -> str | None:
        match = _DATA_URI.match(uri)
        if match is None:
            return None
        suffix = {"jpeg": "jpg", "svg+xml": "svg"}.get(match["type"], match["type"])
        path = f"images/{name}.{suffix}"
        write_atomic(self.folder / path, base64.b64decode(match["data"]))
        return path
