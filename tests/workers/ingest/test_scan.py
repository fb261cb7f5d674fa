"""Which files an ingestion finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workers.ingest import IngestError, Selection
from workers.ingest.scan import scan


def make(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x")


def found(folder: Path, *globs: str, recursive: bool = True, out: str = "out") -> list[str]:
    return [file.path for file in scan(folder, Selection(recursive, globs), folder / out)]


def test_every_pdf_and_picture_whatever_the_case_of_its_ending(tmp_path: Path) -> None:
    make(tmp_path, "a.pdf", "b.PDF", "c.png", "d.jpeg", "e.TIFF", "notes.txt", "archive.zip", "pdf")
    assert found(tmp_path) == ["a.pdf", "b.PDF", "c.png", "d.jpeg", "e.TIFF"]


def test_folders_below_only_if_wanted(tmp_path: Path) -> None:
    make(tmp_path, "a.pdf", "2026/b.pdf", "2026/march/c.pdf")
    assert found(tmp_path, recursive=False) == ["a.pdf"]
    assert found(tmp_path) == ["a.pdf", "2026/b.pdf", "2026/march/c.pdf"]


def test_patterns_choose_among_all_files(tmp_path: Path) -> None:
    make(tmp_path, "a.pdf", "b.png", "2026/c.pdf", "2026/d.png", "2025/e.pdf", "scan.dat")
    assert found(tmp_path, "*.png") == ["b.png", "2026/d.png"]
    assert found(tmp_path, "2026/*.pdf", "*.dat") == ["scan.dat", "2026/c.pdf"]


def test_hidden_files_results_and_links_to_folders_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "a.pdf", ".hidden.pdf", "._a.pdf", ".git/b.pdf", "out/a/images/c.png", "out/d.pdf")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "link.pdf").symlink_to(tmp_path / "a.pdf")
    assert found(tmp_path) == ["a.pdf", "link.pdf"]


def test_names_of_any_bytes_are_found_and_opened(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9 \xf0\x9f\x98\x80\n.pdf")
    (tmp_path / name).write_bytes(b"x")
    assert found(tmp_path) == [name]
    assert (tmp_path / found(tmp_path)[0]).read_bytes() == b"x"


def test_a_pipe_with_the_name_of_a_document_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pdf")
    make(tmp_path, "a.pdf")
    assert found(tmp_path) == ["a.pdf"]


def test_a_link_to_nowhere_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "lost.pdf").symlink_to(tmp_path / "gone.pdf")
    assert [(file.path, bool(file.problem)) for file in scan(tmp_path, Selection(), tmp_path / "out")] == [
        ("lost.pdf", True)
    ]


def test_a_folder_that_cannot_be_entered_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.pdf", "locked/b.pdf")
    real = os.scandir

    def refuse(path: str) -> object:  # the tests may run as root, whom no mode stops
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    files = list(scan(tmp_path, Selection(recursive=True), tmp_path / "out"))
    assert [(file.path, bool(file.problem)) for file in files] == [("a.pdf", False), ("locked/", True)]


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IngestError):
        list(scan(tmp_path / "missing", Selection(), tmp_path / "out"))
