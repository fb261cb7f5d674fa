"""How an ingestion counts, skips, retries and resumes, whatever does the work.

The backend here "parses" a file by reading it: a file that says `bad` fails, one that says `partial` lacks a page.
The real ones are tested beside it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import ParseOptions, Quality, Route
from pipeline.errors import Cancelled, Damaged, DiskFull, OutputBusy
from workers.ingest import IngestError, IngestEvent, Ingestion, Selection, Summary
from workers.ingest.types import FileEnded, FileResult, FileState, Listed, Report, WorkItem


class Reader:
    """A backend that reads files."""

    slots = 3

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.items: list[WorkItem] = []
        self.on_file: Callable[[WorkItem, threading.Event], None] = lambda item, cancelled: None

    def process(
        self, item: WorkItem, report: Report, submitted: Callable[[str], None], cancelled: threading.Event
    ) -> FileResult:
        self.seen.append(item.path)
        self.items.append(item)
        self.on_file(item, cancelled)
        content = item.file.read_bytes()
        if b"bad" in content:
            raise Damaged("It is damaged.")
        if b"full" in content:
            raise DiskFull("No room.")
        if b"surprise" in content:
            raise RuntimeError("what nobody thought of")
        folder = item.output / item.file.stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_bytes(content)
        if b"partial" in content:
            return FileResult(FileState.PARTIAL, folder, 3, 1, error_code="page_failed", error="Page 2.")
        return FileResult(FileState.DONE, folder, 1)

    def close(self) -> None:
        pass


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    return tmp_path / "in"


def write(source: Path, **contents: str) -> None:
    for name, content in contents.items():
        (source / f"{name}.pdf").write_text(content)


def ingest(
    source: Path | None,
    backend: Reader,
    out: Path,
    *,
    events: list[IngestEvent] | None = None,
    options: ParseOptions | None = None,
    **choices: bool,
) -> Summary:
    selection = Selection(recursive=True) if source else None
    with Ingestion(source, out, selection, options or (ParseOptions() if source else None)) as ingestion:
        summary = ingestion.run(backend, (events if events is not None else []).append, **choices)  # type: ignore[arg-type]
    assert summary.reconciles
    return summary


def counts(summary: Summary) -> tuple[int, int, int, int]:
    return summary.found, summary.done, summary.failed, summary.skipped


def failures(out: Path) -> dict[str, str]:
    lines = (out / ".pagemill-ingest" / "failures.jsonl").read_text("utf-8").splitlines()
    return {line["path"]: line["code"] for line in map(json.loads, lines)}


def test_found_is_done_and_failed_and_skipped(source: Path, tmp_path: Path) -> None:
    write(source, a="good", b="bad", c="partial", d="surprise")
    (source / "sub" / "e.pdf").write_text("good")
    events: list[IngestEvent] = []
    summary = ingest(source, Reader(), tmp_path / "out", events=events)
    assert counts(summary) == (5, 3, 2, 0)
    assert (summary.partial, summary.bad_input, summary.pages) == (1, 1, 1 + 2 + 1)
    assert events[0] == Listed(5, 5)
    assert {event.path for event in events if isinstance(event, FileEnded)} == {
        "a.pdf", "b.pdf", "c.pdf", "d.pdf", "sub/e.pdf",
    }  # fmt: skip
    assert failures(tmp_path / "out") == {"b.pdf": "damaged", "c.pdf": "page_failed", "d.pdf": "pipeline_error"}
    assert (tmp_path / "out" / "sub" / "e" / "manifest.json").exists()


def test_the_second_run_skips_what_has_not_changed(source: Path, tmp_path: Path) -> None:
    write(source, a="good", b="bad", c="partial")
    ingest(source, Reader(), tmp_path / "out")
    again = Reader()
    summary = ingest(source, again, tmp_path / "out")
    assert again.seen == []
    assert counts(summary) == (3, 0, 1, 2)
    assert summary.failed_earlier == 1
    assert failures(tmp_path / "out") == {"b.pdf": "damaged", "c.pdf": "page_failed"}


def test_changed_new_and_lost_results_are_parsed_and_gone_files_told_of(source: Path, tmp_path: Path) -> None:
    write(source, a="good", b="bad", c="good", d="good", e="good")
    ingest(source, Reader(), tmp_path / "out")
    write(source, b="good now", c="other good", f="new")
    (source / "d.pdf").unlink()
    (tmp_path / "out" / "e" / "manifest.json").unlink()
    again = Reader()
    summary = ingest(source, again, tmp_path / "out")
    assert sorted(again.seen) == ["b.pdf", "c.pdf", "e.pdf", "f.pdf"]
    assert counts(summary) == (5, 4, 0, 1)
    assert summary.gone == 1
    assert failures(tmp_path / "out") == {}
    assert (tmp_path / "out" / "d" / "manifest.json").exists()


def test_other_options_and_another_folder_of_the_same_names_are_parsed(source: Path, tmp_path: Path) -> None:
    write(source, a="good")
    ingest(source, Reader(), tmp_path / "out")
    assert ingest(source, Reader(), tmp_path / "out", options=ParseOptions(route=Route.OCR)).done == 1
    other = tmp_path / "other"
    other.mkdir()
    os.rename(source / "a.pdf", other / "a.pdf")  # same name, size and time
    assert ingest(other, Reader(), tmp_path / "out", options=ParseOptions(route=Route.OCR)).done == 1


def test_force_parses_everything(source: Path, tmp_path: Path) -> None:
    write(source, a="good", b="bad")
    ingest(source, Reader(), tmp_path / "out")
    assert counts(ingest(source, Reader(), tmp_path / "out", options=ParseOptions(force=True))) == (2, 1, 1, 0)


def test_retry_failed_tries_what_failed_or_lacks_pages(source: Path, tmp_path: Path) -> None:
    write(source, a="good", b="bad", c="partial")
    ingest(source, Reader(), tmp_path / "out")
    again = Reader()
    summary = ingest(source, again, tmp_path / "out", retry_failed=True)
    assert sorted(again.seen) == ["b.pdf", "c.pdf"]
    assert {item.attempt for item in again.items} == {2}
    assert counts(summary) == (3, 1, 1, 1)
    assert summary.failed_earlier == 0


def test_a_failure_that_says_nothing_about_the_file_is_tried_again_unasked(source: Path, tmp_path: Path) -> None:
    write(source, a="full")
    assert ingest(source, Reader(), tmp_path / "out").failed == 1
    again = Reader()
    ingest(source, again, tmp_path / "out")
    assert again.seen == ["a.pdf"]


def test_an_interrupted_run_goes_on_where_it_stopped(source: Path, tmp_path: Path) -> None:
    write(source, **{f"f{number:02}": "good" for number in range(40)})
    stop = threading.Event()
    first = Reader()

    def stop_in_the_middle(item: WorkItem, cancelled: threading.Event) -> None:
        if len(first.seen) == 15:
            stop.set()
        if cancelled.is_set():
            raise Cancelled("Stopped.")

    first.on_file = stop_in_the_middle
    with Ingestion(source, tmp_path / "out", Selection(), ParseOptions()) as ingestion:
        summary = ingestion.run(first, [].append, stop=stop)
    assert summary.interrupted
    assert summary.reconciles
    assert 0 < summary.done < 40
    assert summary.left == 40 - summary.done
    second = Reader()
    rest = ingest(None, second, tmp_path / "out")  # the folder and the options are those of the last run
    assert counts(rest) == (40, summary.left, 0, summary.done)
    assert {item.attempt for item in second.items} == {1}


def test_a_resumed_run_has_the_very_options_and_selection_of_the_last(source: Path, tmp_path: Path) -> None:
    options = ParseOptions(route=Route.OCR, pages="1-3", quality=Quality.HIGH, password="sesame")
    selection = Selection(recursive=True, globs=("*.pdf", "2026/*.png"))
    Ingestion(source, tmp_path / "out", selection, options).close()
    with Ingestion(None, tmp_path / "out") as resumed:
        assert (resumed.source, resumed.selection) == (source, selection)
        assert resumed.options == replace(options, password=None)
        # Enumerations, not their text: the pipeline compares by identity.
        assert resumed.options.route is Route.OCR and resumed.options.quality is Quality.HIGH
    assert b"sesame" not in (tmp_path / "out" / ".pagemill-ingest" / "manifest.db").read_bytes()


def test_ctrl_c_gives_the_count_of_what_was_reached(source: Path, tmp_path: Path) -> None:
    write(source, **{f"f{number:02}": "good" for number in range(20)})

    def interrupt(event: IngestEvent) -> None:
        if isinstance(event, FileEnded):
            raise KeyboardInterrupt

    with Ingestion(source, tmp_path / "out", Selection(), ParseOptions()) as ingestion:
        summary = ingestion.run(Reader(), interrupt)
    assert summary.interrupted and summary.reconciles and summary.left > 0


def test_what_ends_the_ingestion_leaves_the_rest_for_the_next_run(source: Path, tmp_path: Path) -> None:
    write(source, **{f"f{number:02}": "good" for number in range(20)})
    backend = Reader()

    def service_goes_away(item: WorkItem, cancelled: threading.Event) -> None:
        if len(backend.seen) > 5:
            raise IngestError("The service is gone.")

    backend.on_file = service_goes_away
    with pytest.raises(IngestError, match="gone"):
        ingest(source, backend, tmp_path / "out")
    summary = ingest(source, Reader(), tmp_path / "out")
    assert summary.found == 20 and summary.failed == 0 and summary.done >= 14


def test_two_ingestions_into_one_folder_exclude_each_other(source: Path, tmp_path: Path) -> None:
    with Ingestion(source, tmp_path / "out", Selection(), ParseOptions()), pytest.raises(OutputBusy):
        Ingestion(source, tmp_path / "out", Selection(), ParseOptions())
    Ingestion(source, tmp_path / "out", Selection(), ParseOptions()).close()


def test_there_is_nothing_to_resume_in_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="nothing to resume"):
        Ingestion(None, tmp_path / "out")


def test_a_manifest_that_is_damaged_says_what_to_do(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / ".pagemill-ingest").mkdir(parents=True)
    (tmp_path / "out" / ".pagemill-ingest" / "manifest.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(IngestError, match="Remove"):
        Ingestion(source, tmp_path / "out", Selection(), ParseOptions())


def test_a_busy_folder_is_tried_again_after_the_others(source: Path, tmp_path: Path) -> None:
    write(source, **{f"f{number:02}": "good" for number in range(6)})
    backend = Reader()

    def busy_once(item: WorkItem, cancelled: threading.Event) -> None:
        if backend.seen.count(item.path) == 1 and item.path == "f00.pdf":
            raise OutputBusy("Another file has it.")

    backend.on_file = busy_once
    assert counts(ingest(source, backend, tmp_path / "out")) == (6, 6, 0, 0)
    assert backend.seen[-1] == "f00.pdf"


def test_names_that_are_no_text_are_counted_and_listed(source: Path, tmp_path: Path) -> None:
    (source / os.fsdecode(b"caf\xe9.pdf")).write_text("good")
    (source / os.fsdecode(b"bad\xff.pdf")).write_text("bad")
    assert counts(ingest(source, Reader(), tmp_path / "out")) == (2, 1, 1, 0)
    assert list(failures(tmp_path / "out").values()) == ["damaged"]
    assert counts(ingest(source, Reader(), tmp_path / "out")) == (2, 0, 1, 1)


def test_folders_named_like_parts_of_a_result_do_not_get_into_one(source: Path, tmp_path: Path) -> None:
    (source / "a" / "images").mkdir(parents=True)
    (source / "a.pdf").write_text("good")
    (source / "a" / "images" / "b.pdf").write_text("good")
    ingest(source, Reader(), tmp_path / "out")
    assert not (tmp_path / "out" / "a" / "images").exists()
    assert (tmp_path / "out" / "a" / "images_" / "b" / "manifest.json").exists()


def test_while_watching_new_and_changed_files_are_parsed_once_they_have_settled(source: Path, tmp_path: Path) -> None:
    write(source, a="good")
    settle(source / "a.pdf")
    backend = Reader()

    def changes():  # type: ignore[no-untyped-def]
        assert backend.seen == ["a.pdf"]
        write(source, b="good")  # too fresh: somebody may still be writing it
        yield True
        assert backend.seen == ["a.pdf"]
        settle(source / "b.pdf")
        yield False
        assert backend.seen == ["a.pdf", "b.pdf"]
        write(source, a="changed")
        settle(source / "a.pdf")
        yield True
        assert backend.seen == ["a.pdf", "b.pdf", "a.pdf"]
        yield True
        assert len(backend.seen) == 3

    with Ingestion(source, tmp_path / "out", Selection(), ParseOptions()) as ingestion:
        summary = ingestion.run(backend, [].append, changes=changes())
    assert counts(summary) == (2, 2, 0, 0)


def settle(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10_000_000_000))
