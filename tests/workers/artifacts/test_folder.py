"""What holds for artifacts in a folder beyond the conformance suite."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.errors import DiskFull, OutputNotWritable
from workers.artifacts import ArtifactError, artifact_store

WRITE_AND_DIE = """
import os, signal, sys
from workers.artifacts import artifact_store
with artifact_store(sys.argv[1]).writer() as writer:
    writer.write(b"half of it" * 1000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_leaves_only_what_a_sweep_removes(tmp_path: Path) -> None:
    store = artifact_store(tmp_path / "artifacts")
    store.put("inputs/whole", b"whole")
    ended = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, str(tmp_path / "artifacts")], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [info.key for info in store.list()] == ["inputs/whole"]
    assert store.sweep(datetime.now(UTC) - timedelta(hours=1)) == 0  # it may still be at work
    assert store.sweep(datetime.now(UTC) + timedelta(seconds=1)) == 1
    files = [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["whole"]


def test_a_file_url_and_a_path_mean_the_same_folder(tmp_path: Path) -> None:
    artifact_store(f"file://{tmp_path}/with%20space").put("a", b"x")
    assert artifact_store(tmp_path / "with space").exists("a")


def test_nothing_is_made_before_the_first_write(tmp_path: Path) -> None:
    store = artifact_store(tmp_path / "artifacts")
    assert list(store.list()) == []
    assert not store.exists("a")
    assert not (tmp_path / "artifacts").exists()


def test_a_fetched_file_is_the_artifact_itself(tmp_path: Path) -> None:
    store = artifact_store(tmp_path)
    store.put("inputs/a", b"x")
    assert store.fetch("inputs/a") == tmp_path / "inputs" / "a"


def test_deleting_leaves_no_empty_folders(tmp_path: Path) -> None:
    store = artifact_store(tmp_path / "artifacts")
    store.put("jobs/a/result/images/1.png", b"x")
    store.delete("jobs/a/result/images/1.png")
    assert not (tmp_path / "artifacts" / "jobs").exists()


def test_a_full_disk_is_a_typed_error_and_leaves_nothing(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    store = artifact_store(tmp_path / "artifacts")
    store.put("a", b"old")
    with pytest.raises(DiskFull), store.writer() as writer:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, writer._file.fileno())  # type: ignore[attr-defined]
        os.close(full)
        writer.write(b"x" * 10_000_000)
        writer.commit("a")
    assert store.fetch("a").read_bytes() == b"old"
    assert list((tmp_path / "artifacts" / ".working").iterdir()) == []


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = artifact_store(tmp_path / "file" / "artifacts")
    with pytest.raises(OutputNotWritable):
        store.put("a", b"x")


def test_an_address_that_means_no_store_is_refused() -> None:
    with pytest.raises(ArtifactError):
        artifact_store("ftp://host/folder")


@pytest.mark.parametrize("links", [True, False])
def test_a_write_in_the_very_moment_of_a_conditional_delete_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    store = artifact_store(tmp_path / "artifacts")
    store.put("inputs/a", b"old")
    seen = store.info("inputs/a")
    real = os.rename

    def written_again_just_before(source: Path, target: Path) -> None:
        store.put("inputs/a", b"new")
        real(source, target)

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "rename", written_again_just_before)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    assert not store.delete_if_unchanged(seen)
    assert store.fetch("inputs/a").read_bytes() == b"new"
    assert list((tmp_path / "artifacts" / ".working").iterdir()) == []


def test_files_of_another_file_system_are_taken_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = artifact_store(tmp_path / "artifacts")
    (tmp_path / "page.json").write_bytes(b"{}")
    real = os.replace

    def within_the_store(source: Path, target: Path) -> None:
        if not Path(source).is_relative_to(tmp_path / "artifacts"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "replace", within_the_store)
    store.take_all([("jobs/a/pages/1.json", tmp_path / "page.json")])
    assert store.fetch("jobs/a/pages/1.json").read_bytes() == b"{}"
