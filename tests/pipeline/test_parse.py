"""What a user can rely on when a document is parsed: whole results, resumed work, faults that cost one page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import samples
from pipeline import DocumentFinished, DocumentOpened, PageFinished, ParsedDocument, ParseOptions, Status, parse, stream
from pipeline.errors import OutputBusy
from pipeline.page_model import Route
from pipeline.processes import PageProcesses
from tests.conftest import page_process_pids
from tests.documents import pdf_with_a_broken_page, text_pdf


def finish(path: Path, output: Path, processes: PageProcesses, **options: object) -> ParsedDocument:
    """Parse with the shared processes and return the document."""
    events = stream(path, output, ParseOptions(**options), processes=processes)  # type: ignore[arg-type]
    return [event.document for event in events if isinstance(event, DocumentFinished)][-1]


@pytest.fixture(scope="module")
def sample_report(tmp_path_factory: pytest.TempPathFactory, processes: PageProcesses) -> ParsedDocument:
    folder = tmp_path_factory.mktemp("samples")
    report = next(path for path in samples.generate(folder) if path.name == "report.pdf")
    return finish(report, folder / "out", processes)


def test_a_document_becomes_the_files_that_users_of_mineru_know(sample_report: ParsedDocument) -> None:
    names = {path.name for path in sample_report.folder.iterdir()}
    assert names == {"report.md", "report_content_list.json", "report_middle.json", "images", "manifest.json"}
    assert sample_report.status is Status.DONE


def test_every_picture_in_the_markdown_is_a_file_beside_it(sample_report: ParsedDocument) -> None:
    links = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", sample_report.markdown)
    assert links
    assert all((sample_report.folder / link).stat().st_size > 0 for link in links)


def test_the_content_list_and_the_middle_json_hold_the_same_pages(sample_report: ParsedDocument) -> None:
    content = json.loads((sample_report.folder / "report_content_list.json").read_text())
    middle = json.loads((sample_report.folder / "report_middle.json").read_text())
    assert {item["page_idx"] for item in content} == {page["page_idx"] for page in middle["pages"]}
    assert len(middle["pages"]) == len(sample_report.pages)


def test_the_manifest_says_of_each_page_how_it_was_read_and_why(sample_report: ParsedDocument) -> None:
    manifest = json.loads((sample_report.folder / "manifest.json").read_text())
    assert len(manifest["input"]["sha256"]) == 64
    assert manifest["job"]["versions"]["mineru"]
    assert "MinerU" in manifest["notice"]
    assert [page["page"] for page in manifest["pages"]] == list(range(1, len(sample_report.pages) + 1))
    for page in manifest["pages"]:
        assert page["route"] in ("flash", "layout", "ocr")
        assert page["why"]
        assert page["seconds"] >= 0


def test_pages_are_reported_one_by_one_and_the_first_does_not_wait_for_the_last(
    tmp_path: Path, processes: PageProcesses
) -> None:
    kinds = [type(event) for event in stream(text_pdf(tmp_path / "a.pdf", 9), tmp_path / "out", processes=processes)]
    assert kinds == [DocumentOpened, *[PageFinished] * 9, DocumentFinished]


def test_text_comes_out_in_page_order_whatever_order_pages_finish_in(tmp_path: Path, processes: PageProcesses) -> None:
    document = finish(text_pdf(tmp_path / "a.pdf", 10), tmp_path / "out", processes)
    assert [int(n) for n in re.findall(r"Chapter (\d+)", document.markdown)] == list(range(1, 11))


def test_selected_pages_keep_their_numbers(tmp_path: Path, processes: PageProcesses) -> None:
    document = finish(text_pdf(tmp_path / "a.pdf", 5), tmp_path / "out", processes, pages="2,4-")
    assert [record.index for record in document.pages] == [1, 3, 4]
    middle = json.loads((document.folder / "a_middle.json").read_text())
    assert [page["page_idx"] for page in middle["pages"]] == [1, 3, 4]
    assert "Chapter 1" not in document.markdown


@pytest.mark.parametrize("route", [Route.FLASH, Route.LAYOUT, Route.OCR])
def test_every_route_reads_a_plain_page(tmp_path: Path, processes: PageProcesses, route: Route) -> None:
    document = finish(text_pdf(tmp_path / "a.pdf"), tmp_path / "out", processes, route=route)
    assert [record.route for record in document.pages] == [route]
    assert document.markdown.split().count("brown") == 12
    assert "Chapter 1" in document.markdown


def test_routes_mix_within_one_document(tmp_path: Path, processes: PageProcesses) -> None:
    import pypdfium2

    born_digital = text_pdf(tmp_path / "text.pdf")
    scan = next(path for path in samples.generate(tmp_path / "samples") if path.name == "scan.pdf")
    mixed = pypdfium2.PdfDocument.new()
    for source in (born_digital, scan, born_digital):
        mixed.import_pages(pypdfium2.PdfDocument(source), [0])
    mixed.save(tmp_path / "mixed.pdf")
    document = finish(tmp_path / "mixed.pdf", tmp_path / "out", processes)
    routes = [record.route for record in document.pages]
    assert routes[1] is Route.OCR
    assert Route.OCR not in (routes[0], routes[2])
    assert document.markdown.index("Chapter 1") < document.markdown.index("committee met")


def test_an_encrypted_pdf_is_read_with_its_password_which_is_written_nowhere(
    tmp_path: Path, processes: PageProcesses
) -> None:
    path = text_pdf(tmp_path / "a.pdf", password="open sesame")
    document = finish(path, tmp_path / "out", processes, password="open sesame")
    assert "Chapter 1" in document.markdown
    written = [file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert not any(b"open sesame" in data for data in written)


def test_a_finished_document_is_not_parsed_again_unless_forced(tmp_path: Path, processes: PageProcesses) -> None:
    path = text_pdf(tmp_path / "a.pdf", 2)
    first = finish(path, tmp_path / "out", processes)
    before = first.markdown_path.stat().st_mtime_ns
    second = finish(path, tmp_path / "out", processes)
    assert second.unchanged
    assert second.markdown_path.stat().st_mtime_ns == before
    third = finish(path, tmp_path / "out", processes, force=True)
    assert not third.unchanged
    assert third.markdown_path.stat().st_mtime_ns > before
    assert third.markdown == first.markdown


def test_other_options_parse_again_and_replace_the_result(tmp_path: Path, processes: PageProcesses) -> None:
    path = text_pdf(tmp_path / "a.pdf", 3)
    finish(path, tmp_path / "out", processes)
    fewer = finish(path, tmp_path / "out", processes, pages="2")
    assert not fewer.unchanged
    assert "Chapter 2" in fewer.markdown
    assert "Chapter 1" not in fewer.markdown


def test_changed_content_under_the_same_path_is_parsed_again(tmp_path: Path, processes: PageProcesses) -> None:
    finish(text_pdf(tmp_path / "a.pdf", 1), tmp_path / "out", processes)
    changed = finish(text_pdf(tmp_path / "a.pdf", 2), tmp_path / "out", processes)
    assert changed.folder.name == "a"
    assert len(changed.pages) == 2


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, processes: PageProcesses) -> None:
    path = text_pdf(tmp_path / "a.pdf", 12)
    events = stream(path, tmp_path / "out", processes=processes)
    finished = 0
    for event in events:
        finished += isinstance(event, PageFinished)
        if finished == 3:
            break
    events.close()
    store = tmp_path / "out" / "a" / ".pagemill" / "pages"
    kept = {page.name: page.stat().st_mtime_ns for page in store.glob("*.json")}
    assert len(kept) >= 3

    written_again = []
    for event in stream(path, tmp_path / "out", processes=processes):
        if isinstance(event, DocumentOpened):
            assert event.resumed == len(kept)
        if isinstance(event, PageFinished):
            written_again.append(f"{event.record.index + 1:05d}.json")
        if isinstance(event, DocumentFinished):
            assert event.document.status is Status.DONE
            assert len(event.document.pages) == 12
    assert not set(written_again) & set(kept)


def test_a_page_process_killed_in_the_middle_costs_no_page(tmp_path: Path) -> None:
    path = text_pdf(tmp_path / "a.pdf", 12)
    with PageProcesses(1) as own:
        killed = False
        for event in stream(path, tmp_path / "out", processes=own):
            if isinstance(event, PageFinished) and not killed:
                # The first page is done and the next window is under way.
                os.kill(own._processes[0].pid or 0, signal.SIGKILL)
                killed = True
            if isinstance(event, DocumentFinished):
                assert event.document.status is Status.DONE
    assert killed


def test_a_broken_page_in_the_middle_makes_the_document_partial_and_is_named(
    tmp_path: Path, processes: PageProcesses
) -> None:
    document = finish(pdf_with_a_broken_page(tmp_path / "a.pdf"), tmp_path / "out", processes)
    assert document.status is Status.PARTIAL
    assert [(r.index, r.error_code) for r in document.pages if not r.ok] == [(1, "damaged")]
    assert document.markdown.count("sound page") == 2


def test_a_page_over_its_deadline_is_reported_and_nothing_hangs(
    tmp_path: Path, set_limit: Callable[[str, str], None]
) -> None:
    set_limit("PAGEMILL_PAGE_SECONDS", "0.001")
    with PageProcesses(1) as own:
        document = finish(text_pdf(tmp_path / "a.pdf", 2), tmp_path / "out", own, route=Route.OCR)
    assert document.status is Status.FAILED
    assert [record.error_code for record in document.pages] == ["page_timeout"] * 2


def test_a_second_run_on_the_same_document_is_refused_while_the_first_works(
    tmp_path: Path, processes: PageProcesses
) -> None:
    path = text_pdf(tmp_path / "a.pdf", 6)
    first = stream(path, tmp_path / "out", processes=processes)
    assert isinstance(next(first), DocumentOpened)
    with pytest.raises(OutputBusy):
        finish(path, tmp_path / "out", processes)
    assert [event for event in first if isinstance(event, DocumentFinished)]


def test_stopping_leaves_no_page_process(tmp_path: Path) -> None:
    with PageProcesses(2) as own:
        events = stream(text_pdf(tmp_path / "a.pdf", 30), tmp_path / "out", processes=own)
        for event in events:
            if isinstance(event, PageFinished):
                break
        mine = {process.pid for process in own._processes}
    assert not mine & set(page_process_pids())


def test_a_script_without_a_main_guard_can_parse(tmp_path: Path) -> None:
    path = text_pdf(tmp_path / "a.pdf")
    script = tmp_path / "script.py"
    script.write_text(
        f"from pipeline import parse\nprint(parse({str(path)!r}, {str(tmp_path / 'out')!r}, workers=1).status)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, script], cwd=root, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "done\n"


def test_the_library_call_returns_the_finished_document(tmp_path: Path) -> None:
    document = parse(text_pdf(tmp_path / "a.pdf"), tmp_path / "out", workers=1)
    assert document.status is Status.DONE
    assert "Chapter 1" in document.markdown
