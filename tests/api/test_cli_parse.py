"""`pagemill parse` as people run it: what it prints, its exit codes, interruption, faults of disk and folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import samples
from tests.conftest import page_process_pids
from tests.documents import drawn_pdf, pdf_with_a_broken_page, sized_pdf, text_pdf
from tests.pipeline.routes.scripted_vlm import MODEL, Page, ScriptedVlm
from tests.pipeline.routes.vlm_pages import REPORT, report

ROOT = Path(__file__).parents[2]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "api.cli.main", *map(str, arguments)]


def pagemill(*arguments: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    return subprocess.run(command(*arguments), env=environment, capture_output=True, text=True, timeout=300)


def summary(done: subprocess.CompletedProcess[str]) -> dict:  # type: ignore[type-arg]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_help_teaches_the_exit_codes_and_the_way_to_resume() -> None:
    text = pagemill("parse", "--help").stdout
    assert "130 interrupted" in text
    assert "Running the same command again" in text


def test_a_parsed_document_exits_0_and_says_where_it_is(tmp_path: Path) -> None:
    done = pagemill("parse", text_pdf(tmp_path / "a.pdf", 2), "-o", tmp_path / "out")
    assert done.returncode == 0
    assert str(tmp_path / "out" / "a" / "a.md") in done.stderr
    assert done.stdout == ""


def test_json_is_one_object_on_standard_output(tmp_path: Path) -> None:
    done = pagemill("parse", text_pdf(tmp_path / "a.pdf", 2), "-o", tmp_path / "out", "--json")
    result = summary(done)
    assert result["exit_code"] == done.returncode == 0
    assert result["counts"] == {"done": 1, "partial": 0, "failed": 0}
    assert result["documents"][0]["pages"] == 2
    assert Path(result["documents"][0]["markdown"]).is_file()


@pytest.mark.parametrize(
    "arguments", [["parse"], ["parse", "a.pdf", "--route", "magic"], ["parse", "a.pdf", "--pages", "5-2"], ["grind"]]
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    done = pagemill(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_bad_input_exits_3_with_a_code_and_a_sentence_and_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "empty.pdf").touch()
    files = [tmp_path / "empty.pdf", text_pdf(tmp_path / "a.pdf"), tmp_path / "nowhere.pdf"]
    done = pagemill("parse", *files, "-o", tmp_path / "out", "--json")
    assert done.returncode == 3
    codes = [document.get("error") and document["error"]["code"] for document in summary(done)["documents"]]
    assert codes == ["empty_file", None, "unreadable_file"]
    assert "The file is empty" in done.stderr
    assert not (tmp_path / "out" / "empty").exists()


def test_some_failed_pages_exit_4_and_are_named(tmp_path: Path) -> None:
    done = pagemill("parse", pdf_with_a_broken_page(tmp_path / "a.pdf"), "-o", tmp_path / "out", "--json")
    assert done.returncode == 4
    assert [(p["page"], p["code"]) for p in summary(done)["documents"][0]["pages_failed"]] == [(2, "damaged")]
    assert "page 2" in done.stderr


def test_no_page_read_exits_5(tmp_path: Path) -> None:
    done = pagemill("parse", text_pdf(tmp_path / "a.pdf"), "-o", tmp_path / "out", PAGEMILL_PAGE_SECONDS="0.001")
    assert done.returncode == 5
    assert "page_timeout" in done.stderr


def test_blank_and_tiny_pages_are_valid_documents(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (1, 1), "white").save(tmp_path / "dot.png")
    Image.new("CMYK", (300, 200), (0, 0, 0, 0)).save(tmp_path / "cmyk.jpg")
    blank = sized_pdf(tmp_path / "blank.pdf", [(612, 792), (3, 3)])
    done = pagemill("parse", blank, tmp_path / "dot.png", tmp_path / "cmyk.jpg", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "dot" / "dot.md").read_text().strip() == ""


@pytest.mark.parametrize(
    "name", ["with space.pdf", "[a](b).pdf", "📄.pdf", "-dash.pdf", "..pdf", "x" * 200 + ".pdf", "q?*.pdf", "no suffix"]
)
def test_names_of_any_kind_stay_inside_the_output_folder(tmp_path: Path, name: str) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    text_pdf(inputs / name)
    done = pagemill("parse", "-o", tmp_path / "out", "--json", "--", inputs / name)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in", "out"] or {p.name for p in tmp_path.iterdir()} == {
        "in",
        "out",
    }
    folders = list((tmp_path / "out").iterdir())
    assert len(folders) == 1
    assert Path(summary(done)["documents"][0]["markdown"]).parent == folders[0]
    assert "brown fox" in Path(summary(done)["documents"][0]["markdown"]).read_text()


def test_equal_stems_from_two_folders_do_not_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    files = [text_pdf(tmp_path / "x" / "a.pdf", 1), text_pdf(tmp_path / "y" / "a.pdf", 2)]
    done = pagemill("parse", *files, "-o", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    pages = {document["folder"]: document["pages"] for document in summary(done)["documents"]}
    assert sorted(pages.values()) == [1, 2]
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_equal_files_of_equal_names_are_parsed_once_and_both_succeed(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        text_pdf(tmp_path / folder / "a.pdf", 2)
    done = pagemill("parse", tmp_path / "x/a.pdf", tmp_path / "y/a.pdf", "-o", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert [document["status"] for document in summary(done)["documents"]] == ["done", "done"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_exits_130_leaves_no_process_and_the_same_command_goes_on(tmp_path: Path, sent: int) -> None:
    path = text_pdf(tmp_path / "a.pdf", 40)
    arguments = command("parse", path, "-o", tmp_path / "out", "--workers", "1")
    run = subprocess.Popen(
        arguments, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    pages = tmp_path / "out" / "a" / ".pagemill" / "pages"
    wait_for(lambda: pages.is_dir() and len(list(pages.glob("*.json"))) >= 1, run)
    children = page_process_pids(run.pid)
    run.send_signal(sent)
    _, stderr = run.communicate(timeout=20)
    assert run.returncode == 130
    assert "run the same command again" in stderr
    assert children
    assert not any(psutil.pid_exists(pid) for pid in children)
    done = pagemill("parse", path, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert "already done" in done.stderr


def test_a_killed_run_leaves_no_process_and_the_same_command_goes_on(tmp_path: Path) -> None:
    path = text_pdf(tmp_path / "a.pdf", 40)
    arguments = command("parse", path, "-o", tmp_path / "out", "--workers", "2")
    run = subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    pages = tmp_path / "out" / "a" / ".pagemill" / "pages"
    wait_for(lambda: pages.is_dir() and len(list(pages.glob("*.json"))) >= 2, run)
    children = page_process_pids(run.pid)
    run.kill()
    run.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in children))
    done = pagemill("parse", path, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert "already done" in done.stderr
    assert not (tmp_path / "out" / "a" / ".pagemill").exists()


def test_two_runs_on_one_folder_at_once_both_end_and_the_result_is_whole(tmp_path: Path) -> None:
    paths = [text_pdf(tmp_path / f"{name}.pdf", 4) for name in "ab"]
    arguments = command("parse", *paths, "-o", tmp_path / "out", "--workers", "1")
    runs = [
        subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ends = [(run.communicate(timeout=120)[1], run.returncode) for run in runs]
    assert all(code == 0 or (code == 5 and "output_busy" in stderr) for stderr, code in ends), ends
    assert {code for _, code in ends} & {0} or pagemill(*arguments[3:]).returncode == 0
    for name in "ab":
        assert (tmp_path / "out" / name / f"{name}.md").read_text().count("Chapter") == 4


def test_a_folder_that_may_not_be_written_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("this is a file")
    done = pagemill("parse", text_pdf(tmp_path / "a.pdf"), "-o", tmp_path / "out")
    assert done.returncode == 5
    assert "output_not_writable" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte, where this machine lets the tests mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def read_only_disk(small_disk: Path) -> Path:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    return small_disk


def test_a_read_only_disk_is_an_error_with_advice(tmp_path: Path, read_only_disk: Path) -> None:
    done = pagemill("parse", text_pdf(tmp_path / "a.pdf"), "-o", read_only_disk / "out")
    assert done.returncode == 5
    assert "output_not_writable" in done.stderr


def test_a_full_disk_is_said_and_the_same_command_goes_on_once_there_is_space(tmp_path: Path, small_disk: Path) -> None:
    scan = next(path for path in samples.generate(tmp_path / "samples") if path.name == "report.pdf")
    (small_disk / "ballast").write_bytes(bytes(470 * 1024))
    done = pagemill("parse", scan, "-o", small_disk / "out")
    assert done.returncode == 5
    assert "disk_full" in done.stderr
    assert not list((small_disk / "out").rglob("*.part"))
    (small_disk / "ballast").unlink()
    done = pagemill("parse", scan, "-o", small_disk / "out")
    assert done.returncode == 0, done.stderr


def wait_for(condition, run: subprocess.Popen[str] | subprocess.Popen[bytes] | None = None) -> None:  # type: ignore[no-untyped-def]
    """Wait for something another process does; there is no event to wait on across the border."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        assert run is None or run.poll() is None, "the command ended before it happened"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_engine_can_be_named_on_the_command_line(tmp_path: Path) -> None:
    path = drawn_pdf(tmp_path / "report.pdf", [report])
    with ScriptedVlm(path, [REPORT]) as script:
        done = pagemill("parse", path, "-o", tmp_path / "out", "--engine", script.url, "--json")
        assert script.asked
    assert done.returncode == 0, done.stderr
    assert summary(done)["documents"][0]["routes"] == {"vlm": 1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--route", "vlm"], "PAGEMILL_ENGINE_URL"),
        (["--engine", "localhost:9"], "http://host:port"),
        (["--engine", "http://a:b@localhost"], "http://host:port"),
    ],
)
def test_a_wrong_use_of_the_engine_is_a_usage_error(tmp_path: Path, options: list[str], said: str) -> None:
    done = pagemill("parse", text_pdf(tmp_path / "a.pdf"), "-o", tmp_path / "out", *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_an_engine_that_is_away_ends_the_forced_route_with_its_code(tmp_path: Path) -> None:
    path = text_pdf(tmp_path / "a.pdf")
    with ScriptedVlm(path, [Page()]) as script:
        url = script.url
    done = pagemill("parse", path, "-o", tmp_path / "out", "--engine", url, "--route", "vlm", "--json")
    assert done.returncode == 5
    assert summary(done)["documents"][0]["error"]["code"] == "engine_unavailable"


def test_doctor_asks_the_engine_how_it_is(tmp_path: Path) -> None:
    def row(**settings: str) -> dict:  # type: ignore[type-arg]
        findings = json.loads(pagemill("doctor", "--json", **settings).stdout)["findings"]
        return next(finding for finding in findings if finding["name"] == "route vlm")  # type: ignore[no-any-return]

    assert row()["state"] == "off" and "PAGEMILL_ENGINE_URL" in row()["detail"]
    with ScriptedVlm(text_pdf(tmp_path / "a.pdf"), [Page()]) as script:
        well = row(PAGEMILL_ENGINE_URL=script.url)
        assert well["state"] == "ok" and MODEL in well["detail"] and "2 of 2 instances usable" in well["detail"]
        other = row(PAGEMILL_ENGINE_URL=script.url, PAGEMILL_ENGINE_MODEL="another")
        assert other["state"] == "off" and "another" in other["detail"]
    away = row(PAGEMILL_ENGINE_URL=script.url)
    assert away["state"] == "off" and "does not answer" in away["detail"]
