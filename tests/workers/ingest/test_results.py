"""Results made elsewhere, put into a document's folder."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.manifest import Manifest
from workers.ingest.errors import ServerUnavailable
from workers.ingest.results import Part, publish

SHA256 = "ab" * 32
MANIFEST = {
    "status": "done",
    "input": {"sha256": SHA256, "path": "/elsewhere/x.pdf", "name": "x.pdf"},
    "job": {},
    "pages": [],
    "seconds": 1.0,
}


def result(text: str = "# Title", **more: bytes) -> dict[str, bytes]:
    return {
        "document.md": text.encode(),
        "content_list.json": b"[]",
        "middle.json": b"{}",
        "manifest.json": json.dumps(MANIFEST).encode(),
        **more,
    }


def parts(files: dict[str, bytes]) -> Iterator[Part]:
    for name, data in files.items():
        yield name, io.BytesIO(data)


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_result_becomes_a_folder_as_a_parse_here_leaves_it(tmp_path: Path) -> None:
    files = {**result(), "images/page-0001-1.jpg": b"picture"}
    folder = publish(tmp_path / "in" / "letter.pdf", tmp_path / "out", SHA256, parts(files))
    assert listing(tmp_path / "out") == [
        "letter/images/page-0001-1.jpg",
        "letter/letter.md",
        "letter/letter_content_list.json",
        "letter/letter_middle.json",
        "letter/manifest.json",
    ]
    manifest = Manifest.read(folder.manifest)
    assert manifest is not None
    assert (manifest.input["name"], manifest.input["path"]) == ("letter.pdf", str(tmp_path / "in" / "letter.pdf"))


def test_a_new_result_replaces_the_old_one_whole(tmp_path: Path) -> None:
    source = tmp_path / "letter.pdf"
    publish(source, tmp_path / "out", SHA256, parts({**result("old"), "images/old.jpg": b"x"}))
    publish(source, tmp_path / "out", SHA256, parts({**result("new"), "images/new.jpg": b"y"}))
    assert (tmp_path / "out" / "letter" / "letter.md").read_text() == "new"
    assert [path.name for path in (tmp_path / "out" / "letter" / "images").iterdir()] == ["new.jpg"]


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/outside", "images/../../outside", "images/a/b", "images/", "images/.hidden", "other.txt"],
)
def test_names_that_no_result_has_write_nothing(tmp_path: Path, name: str) -> None:
    publish(tmp_path / "letter.pdf", tmp_path / "out", SHA256, parts({name: b"evil", **result()}))
    assert all(b"evil" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_half_a_result_leaves_the_old_one(tmp_path: Path) -> None:
    source = tmp_path / "letter.pdf"
    publish(source, tmp_path / "out", SHA256, parts(result("old")))
    half = result("new")
    del half["middle.json"]
    with pytest.raises(ServerUnavailable, match=r"middle\.json"):
        publish(source, tmp_path / "out", SHA256, parts(half))

    def broken() -> Iterator[Part]:
        yield from parts(result("new"))
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        publish(source, tmp_path / "out", SHA256, broken())
    assert (tmp_path / "out" / "letter" / "letter.md").read_text() == "old"
    assert Manifest.read(tmp_path / "out" / "letter" / "manifest.json") is not None
    assert not (tmp_path / "out" / "letter" / ".pagemill").exists()


def test_two_documents_of_one_name_get_two_folders(tmp_path: Path) -> None:
    other = {**result("other"), "manifest.json": json.dumps(MANIFEST).replace(SHA256, "cd" * 32).encode()}
    one = publish(tmp_path / "a.pdf", tmp_path / "out", SHA256, parts(result("one")))
    two = publish(tmp_path / "a.png", tmp_path / "out", "cd" * 32, parts(other))
    assert one.path != two.path
    assert (one.markdown.read_text(), two.markdown.read_text()) == ("one", "other")
