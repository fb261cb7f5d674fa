"""`pagemill ingest DIR` as a user runs it: real documents, real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.documents import text_pdf

COMMAND = [sys.executable, "-m", "api.cli.main", "ingest"]


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def ingest(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, the summary, what went to stderr."""
    process = start(*arguments, "--json")
    output, errors = process.communicate(timeout=300)
    return process.returncode, json.loads(output) if output else {}, errors


def many_documents(folder: Path, count: int) -> None:
    """Small documents, each of other bytes: what follows the end of a PDF is a comment."""
    folder.mkdir(parents=True, exist_ok=True)
    template = text_pdf(folder.parent / "template.pdf").read_bytes()
    for number in range(count):
        (folder / f"d{number:03}.pdf").write_bytes(template + b"%% %d\n" % number)


def states(out: Path) -> dict[str, int]:
    with sqlite3.connect(f"file:{out}/.pagemill-ingest/manifest.db?mode=ro", uri=True) as db:
        return dict(db.execute("SELECT coalesce(outcome, 'open'), count(*) FROM files GROUP BY 1").fetchall())


def wait_for_done(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until so many files are done."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        try:
            if states(out).get("done", 0) >= count:
                return
        except sqlite3.OperationalError:
            pass  # not made yet
        time.sleep(0.05)
    raise AssertionError(f"{count} files were not done in time")


def assert_whole(out: Path, folder: str) -> None:
    name = Path(folder).name
    assert "Chapter 1" in (out / folder / f"{name}.md").read_text("utf-8")
    for file in (f"{name}_content_list.json", f"{name}_middle.json", "manifest.json"):
        json.loads((out / folder / file).read_text("utf-8"))
    assert not (out / folder / ".pagemill").exists()


def test_a_tree_with_good_and_bad_files(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    (source / "2026").mkdir(parents=True)
    text_pdf(source / "a.pdf", pages=2)
    text_pdf(source / "2026" / "b.pdf")
    (source / "2026" / "junk.pdf").write_bytes(b"no document")
    (source / "empty.pdf").write_bytes(b"")
    (source / "notes.txt").write_text("not meant")
    code, summary, errors = ingest(source, "-o", out, "--recursive")
    assert (summary["found"], summary["done"], summary["failed"], summary["skipped"]) == (4, 2, 2, 0)
    assert (summary["pages"], summary["reconciles"]) == (3, True)
    assert code == summary["exit_code"] == 3
    assert "junk.pdf" in errors
    for folder in ("a", "2026/b"):
        assert_whole(out, folder)
    lines = [json.loads(line) for line in Path(summary["failures"]).read_text("utf-8").splitlines()]
    assert {line["path"]: line["code"] for line in lines} == {"2026/junk.pdf": "not_a_pdf", "empty.pdf": "empty_file"}
    # Mended, and tried again.
    text_pdf(source / "empty.pdf")
    code, summary, _ = ingest(source, "-o", out, "--recursive", "--retry-failed")
    assert (summary["found"], summary["done"], summary["failed"], summary["skipped"]) == (4, 1, 1, 2)
    os.unlink(source / "2026" / "junk.pdf")
    code, summary, _ = ingest("--resume", "-o", out)
    assert (code, summary["found"], summary["skipped"], summary["gone"]) == (0, 3, 3, 1)


def test_three_hundred_documents_are_all_accounted_for(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    many_documents(source, 296)
    for number in range(4):
        (source / f"bad{number}.pdf").write_bytes(b"bad")
    code, summary, errors = ingest(source, "-o", out)
    assert code == 3, errors
    assert (summary["found"], summary["done"], summary["failed"], summary["skipped"]) == (300, 296, 4, 0)
    assert summary["reconciles"]
    assert len(list(out.glob("*/manifest.json"))) == 296
    for number in (0, 150, 295):
        assert_whole(out, f"d{number:03}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_count_and_the_next_run_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    many_documents(source, 16)
    process = start(source, "-o", out, "--json", start_new_session=True)
    wait_for_done(out, 3, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    first = json.loads(output)
    assert first["interrupted"] and first["reconciles"]
    assert first["done"] >= 3 and first["left"] == 16 - first["done"]
    assert psutil.wait_procs(children, timeout=10)[1] == []
    code, second, _ = ingest("--resume", "-o", out)
    assert code == 0
    assert (second["found"], second["done"], second["skipped"]) == (16, first["left"], first["done"])
    manifests = [json.loads(path.read_text("utf-8")) for path in out.glob("*/manifest.json")]
    # Equal files are read in the same way, whichever run reads them.
    assert len({(page["route"], page["why"]) for manifest in manifests for page in manifest["pages"]}) == 1


def test_after_a_kill_the_next_run_parses_only_what_was_not_done(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    many_documents(source, 14)
    process = start(source, "-o", out, start_new_session=True)
    wait_for_done(out, 3, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    assert psutil.wait_procs(children, timeout=10)[1] == [], "page processes outlived their parent"
    done = states(out)["done"]
    made = {path: path.stat().st_mtime_ns for path in out.glob("*/manifest.json")}
    code, summary, errors = ingest(source, "-o", out)
    assert code == 0, errors
    assert summary["found"] == 14 == summary["done"] + summary["skipped"]
    assert summary["skipped"] >= done
    # One that was finished but not yet written down is recognised by its own manifest.
    assert all(path.stat().st_mtime_ns == moment for path, moment in made.items())
    assert len(list(out.glob("*/manifest.json"))) == 14
    assert list(out.glob("**/.pagemill")) == []


def test_watching_takes_what_arrives_and_ends_well(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    process = start(source, "-o", out, "--watch", "--recursive", "--json")
    try:
        (source / "below").mkdir()
        text_pdf(source / "below" / "late.pdf")
        wait_for_done(out, 1, process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    summary = json.loads(output)
    assert (summary["found"], summary["done"], summary["left"]) == (1, 1, 0)
    assert_whole(out, "below/late")


def test_wrong_use_is_told_before_anything_is_made(tmp_path: Path) -> None:
    for arguments in (["-o", tmp_path / "out"], [tmp_path, "--redis", "redis://x", "--server", "http://x"]):
        process = start(*arguments)
        process.communicate(timeout=60)
        assert process.returncode == 2
    code, _, errors = ingest(tmp_path / "missing", "-o", tmp_path / "out")
    assert code == 5
    assert "no folder" in errors
