from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.hostile import judge, load_expectations
from bench.process_tree import Run

DOCUMENT = {"document": True}


def ended(returncode: int | None, document: Mapping[str, Any] | None) -> Run:
    stdout = json.dumps({"documents": [document]}) if document else "Traceback"
    return Run(returncode, 0.1, 0, (), stdout, "some error\n")


def error(code: str) -> dict[str, Any]:
    return {"status": "failed", "error": {"code": code, "message": "..."}}


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "page.md").write_text("", "utf-8")
    for name in ("page_content_list.json", "page_middle.json", "manifest.json"):
        (folder / name).write_text("{}", "utf-8")
    return {"status": "done", "folder": str(folder), "error": None}


def test_the_expected_error_with_the_exit_code_of_bad_input_is_right() -> None:
    assert judge(ended(3, error("encrypted")), {"codes": ["encrypted"]}) == ("encrypted", "")


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        (ended(3, error("damaged")), {"codes": ["encrypted"]}),
        (ended(1, error("encrypted")), {"codes": ["encrypted"]}),
        (ended(3, error("damaged")), DOCUMENT),
        (ended(1, None), DOCUMENT),
        (ended(None, None), DOCUMENT),
    ],
)
def test_another_error_another_exit_code_or_no_answer_is_a_fault(finished: Run, expected: dict[str, Any]) -> None:
    assert judge(finished, expected)[1]


def test_a_whole_document_is_right_where_one_may_be(document: dict[str, Any]) -> None:
    assert judge(ended(0, document), DOCUMENT) == (None, "")
    assert judge(ended(0, document), {"codes": ["encrypted"]})[1]


@pytest.mark.parametrize("name", ["page.md", "page_middle.json", "page_content_list.json", "manifest.json"])
def test_a_document_with_a_file_missing_is_a_fault(document: dict[str, Any], name: str) -> None:
    (Path(document["folder"]) / name).unlink()
    assert judge(ended(0, document), DOCUMENT)[1]


def test_a_partial_document_is_a_fault(document: dict[str, Any]) -> None:
    assert judge(ended(4, {**document, "status": "partial"}), DOCUMENT)[1]


def test_every_expected_code_exists() -> None:
    from pipeline import errors

    known = {value.code for value in vars(errors).values() if isinstance(value, type) and hasattr(value, "code")}
    for name, expected in load_expectations().items():
        assert expected.get("document") or expected["codes"], name
        assert set(expected.get("codes", ())) <= known, name
