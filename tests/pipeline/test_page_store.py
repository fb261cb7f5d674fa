"""Finished pages survive anything; pages of another job are never taken for this one's."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image

from pipeline.page_model import PageModel, Route
from pipeline.page_store import PageRecord, PageStore


def picture() -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(buffer, "JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def page(text: str = "words") -> PageModel:
    block = {"type": "text", "bbox": [0.1, 0.1, 0.9, 0.2], "content": [{"type": "text", "content": text}]}
    return PageModel([block], 595.0, 842.0, rotation=90)


@pytest.fixture
def store(tmp_path: Path) -> PageStore:
    store = PageStore(tmp_path)
    store.prepare({"sha256": "1"})
    return store


def record(index: int, **values: object) -> PageRecord:
    return PageRecord(index, Route.FLASH, "text layer", 0.5, **values)  # type: ignore[arg-type]


def test_a_page_comes_back_as_it_was_saved(store: PageStore) -> None:
    saved = record(4, warnings=("a warning",))
    store.save(saved, page())
    assert store.load(4) == (saved, page())
    assert list(store.records()) == [saved]


def test_pictures_become_files_and_no_picture_stays_in_the_page(store: PageStore) -> None:
    model = PageModel(
        [
            {"type": "image", "bbox": [0, 0, 1, 1], "content": "", "image_base64": picture()},
            {
                "type": "table",
                "bbox": [0, 0, 1, 1],
                "content": f'<table><tr><td><img src="{picture()}"></td></tr></table>',
            },
        ],
        595.0,
        842.0,
    )
    store.save(record(0), model)
    image, table = store.load(0)[1].blocks
    assert Image.open(store.folder / image["image_path"]).size == (4, 4)
    assert "base64" not in table["content"]
    inside = table["content"].split('src="')[1].split('"')[0]
    assert Image.open(store.folder / inside).size == (4, 4)


def test_the_same_job_finds_its_pages_and_another_job_starts_empty(store: PageStore) -> None:
    store.save(record(0), page())
    store.prepare({"sha256": "1"})
    assert len(list(store.records())) == 1
    store.prepare({"sha256": "2"})
    assert list(store.records()) == []


def test_a_page_that_was_never_written_is_missing(store: PageStore) -> None:
    with pytest.raises(KeyError):
        store.load(7)


def test_a_half_written_page_of_a_dead_process_is_not_taken_for_a_page(store: PageStore) -> None:
    store.save(record(0), page())
    (store.folder / "pages" / ".abc.part").write_text("{")
    assert [found.index for found in store.records()] == [0]
