"""A file system that is really full, not one that says so."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers.servers import wait_for
from tests.workers.service import Service
from workers.runtime import EmbeddedRuntime
from workers.store import DocumentState

Make = Callable[..., Service]
_SIZE = 24 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "pagemill-test", str(folder)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_is_waited_out_and_nothing_is_lost(
    make_service: Make,
    small_disk: Path,
    pdfs: dict[int, Path],
    expected: dict[int, bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = make_service(artifacts_url=str(small_disk / "artifacts"), max_attempts=50)
    documents = [service.submit(pdfs[size]) for size in (40, 3)]
    with EmbeddedRuntime(service.settings, 1, store=service.store, artifacts=service.artifacts):
        wait_for(lambda: service.store.document(documents[0].id).pages_done > 0, "a page is done", 60)
        filler = small_disk / "filler"
        _fill(filler)
        wait_for(lambda: caplog.text.count("The disk is full.") >= 3, "writes are refused", 60)
        assert not any(service.state(document) is DocumentState.FAILED for document in documents)
        filler.unlink()
        ends = service.wait(*documents, seconds=180)
    assert [end.state for end in ends] == [DocumentState.DONE] * 2, [end.error for end in ends]
    assert [service.result(document) for document in documents] == [expected[40], expected[3]]
    service.assert_clean(documents)
    assert list((small_disk / "artifacts").rglob("*.part")) == []


def _fill(path: Path) -> None:
    """Take every byte that is left."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while True:
                os.write(descriptor, bytes(1 << 12))
    finally:
        os.close(descriptor)
