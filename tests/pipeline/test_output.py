"""Every document gets a folder of its own, whatever its name, and two runs never share one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import OutputBusy, OutputNotWritable
from pipeline.files import write_json
from pipeline.output import claim_folder, safe_stem

HOSTILE_NAMES = [
    "../../etc/passwd.pdf",
    "..pdf",
    ".hidden.pdf",
    "-rf.pdf",
    "with space.pdf",
    "[brackets](and) *stars*.pdf",
    "📄🔥.pdf",
    "a\x00b\n.pdf",
    "CON.pdf",
    "x" * 300 + ".pdf",
    "文" * 100 + ".pdf",
    ".pdf",
    "trailing. .pdf",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_make_one_safe_folder_inside_the_output(tmp_path: Path, name: str) -> None:
    stem = safe_stem(name)
    folder = tmp_path / stem
    folder.mkdir()
    (folder / f"{stem}_content_list.json").write_text("x")
    assert folder.parent == tmp_path
    assert [child.name for child in tmp_path.iterdir()] == [stem]
    assert not stem.startswith((".", "-"))


@given(st.text(min_size=1))
def test_any_name_makes_a_name_that_file_systems_take(name: str) -> None:
    stem = safe_stem(name)
    assert stem
    assert "/" not in stem
    assert "\0" not in stem
    assert len(f"{stem}_content_list.json".encode()) <= 255
    assert stem not in (".", "..")


def test_long_names_that_differ_at_the_end_stay_apart() -> None:
    assert safe_stem("y" * 250 + "1.pdf") != safe_stem("y" * 250 + "2.pdf")


def test_ordinary_names_are_kept() -> None:
    assert safe_stem("Jahresbericht 2024 (Entwurf) – v1.2.pdf") == "Jahresbericht 2024 (Entwurf) – v1.2"


def claimed(output: Path, path: Path, sha256: str) -> str:
    """Claim a folder, leave a manifest in it as a finished run does, and return its name."""
    with claim_folder(output, path, sha256) as folder:
        write_json(folder.manifest, {"input": {"sha256": sha256, "path": str(path.resolve())}})
        return folder.stem


def test_two_inputs_of_one_stem_do_not_share_a_folder(tmp_path: Path) -> None:
    first = claimed(tmp_path, tmp_path / "a" / "report.pdf", "1" * 64)
    second = claimed(tmp_path, tmp_path / "b" / "report.pdf", "2" * 64)
    assert (first, second) == ("report", "report-22222222")


def test_the_same_input_gets_its_folder_back_also_after_its_content_changed(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    assert {claimed(tmp_path, path, digit * 64) for digit in "112"} == {"report"}


def test_a_second_run_on_the_same_document_is_told_so(tmp_path: Path) -> None:
    with claim_folder(tmp_path, tmp_path / "a.pdf", "1" * 64):
        with pytest.raises(OutputBusy), claim_folder(tmp_path, tmp_path / "a.pdf", "1" * 64):
            pass
        with claim_folder(tmp_path, tmp_path / "other" / "a.pdf", "2" * 64) as folder:
            assert folder.stem == "a-22222222"


def test_a_finished_claim_leaves_no_lock_and_an_unused_one_no_folder(tmp_path: Path) -> None:
    claimed(tmp_path, tmp_path / "a.pdf", "1" * 64)
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["manifest.json"]
    with claim_folder(tmp_path, tmp_path / "b.pdf", "2" * 64):
        pass
    assert not (tmp_path / "b").exists()


def test_an_output_that_is_a_file_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputNotWritable, match="-o"), claim_folder(tmp_path / "out", tmp_path / "a.pdf", "1" * 64):
        pass
