"""From finished pages to a document's files: middle JSON, Markdown, content list, images.

Runs in a page process: it needs MinerU, and its memory grows with the document's text (never with its
pictures, which stay files).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline import mineru
from pipeline.files import typed_write_errors, write_atomic
from pipeline.output import OutputFolder
from pipeline.page_model import PageModel, Route
from pipeline.page_store import PageRecord, PageStore


@dataclass(frozen=True, slots=True)
class AssembleRequest:
    """Pages to put together.

    Attributes:
        folder: the document's output folder; its store holds the finished pages.
        pages: 0-based indices of all pages asked for, ascending. One that is not in the store is left empty.
        page_count: of the whole document.
        pdf: the PDF that the document's properties (title, authors) are read from; None for an image.
        password: that opens it.
    """

    folder: Path
    pages: tuple[int, ...]
    page_count: int
    pdf: str | None
    password: str | None


def assemble(request: AssembleRequest) -> Iterator[Path]:
    """Write the document's files and yield the path of its Markdown.

    Raises:
        DiskFull, OutputNotWritable: files already there are whole, each the old or the new one.
    """
    folder = OutputFolder(request.folder)
    store = PageStore(folder.store)
    records, models = _load(store, request.pages)
    document = mineru.build_document(
        models,
        pages=request.pages,
        page_count=request.page_count,
        ocr=any(record.route is Route.OCR for record in records),
        properties=mineru.source_properties(request.pdf) if request.pdf and not request.password else None,
    )
    _publish_images(store, folder)
    write_atomic(folder.markdown, mineru.markdown(document).encode("utf-8", "replace"))
    write_atomic(folder.content_list, _json(mineru.content_list(document)))
    write_atomic(folder.middle, _json(mineru.middle_json(document)))
    yield folder.markdown


def page_markdown(page: PageModel) -> str:
    """The Markdown of one page by itself, before its document is finished."""
    document = mineru.build_document([page], pages=(0,), page_count=1, ocr=False, properties=None)
    return mineru.markdown(document)


def _load(store: PageStore, pages: tuple[int, ...]) -> tuple[list[PageRecord], list[PageModel]]:
    records: list[PageRecord] = []
    models: list[PageModel] = []
    for index in pages:
        try:
            record, model = store.load(index)
        except KeyError:
            models.append(PageModel(blocks=[], width_pt=1.0, height_pt=1.0))
        else:
            records.append(record)
            models.append(model)
    return records, models


def _publish_images(store: PageStore, folder: OutputFolder) -> None:
    """Make `images/` exactly the pictures of the stored pages, by hard links where the file system can."""
    fresh = folder.path / ".images.part"
    with typed_write_errors(folder.images):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for picture in sorted((store.folder / "images").iterdir()):
            if picture.name.startswith("."):
                continue
            try:
                os.link(picture, fresh / picture.name)
            except OSError:
                shutil.copyfile(picture, fresh / picture.name)
        shutil.rmtree(folder.images, ignore_errors=True)
        os.replace(fresh, folder.images)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace")
