from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.quality import judge, load_facts, measure

pytest.importorskip("olmocr.bench.tests", reason="the fact checker is not installed (requirements/bench.txt)")

FACTS = [
    {"pdf": "a.pdf", "page": 1, "id": "a1", "type": "present", "text": "the mill grinds pages"},
    {"pdf": "a.pdf", "page": 1, "id": "a2", "type": "absent", "text": "Confidential draft"},
    {"pdf": "a.pdf", "page": 1, "id": "a3", "type": "order", "before": "the mill", "after": "the river"},
    {"pdf": "a.pdf", "page": 1, "id": "a4", "type": "table", "cell": "12", "left": "North"},
]
MARKDOWN = "the mill grinds pages beside the river\n\n<table><tr><td>North</td><td>12</td></tr></table>"


def test_facts_that_hold_pass() -> None:
    assert [verdict.holds for verdict in judge(FACTS, {"a.pdf": MARKDOWN})] == [True] * 4


def test_facts_that_do_not_hold_fail_with_a_reason() -> None:
    markdown = "Confidential draft: the river, then the mill.\n\n<table><tr><td>South</td><td>12</td></tr></table>"
    verdicts = judge(FACTS, {"a.pdf": markdown})
    assert [verdict.holds for verdict in verdicts] == [False] * 4
    assert all(verdict.reason for verdict in verdicts)


@pytest.mark.parametrize("markdown", [{}, {"a.pdf": ""}, {"a.pdf": " \n"}])
def test_a_document_without_text_fails_every_fact_even_an_absent_one(markdown: dict[str, str]) -> None:
    assert not any(verdict.holds for verdict in judge(FACTS, markdown))


def test_facts_about_formulas_are_left_out(tmp_path: Path) -> None:
    math = {"pdf": "a.pdf", "page": 1, "id": "m", "type": "math", "math": "x^2"}
    checks = tmp_path / "checks.jsonl"
    checks.write_text("\n".join(json.dumps(fact) for fact in [math, *FACTS]) + "\n\n", "utf-8")
    assert [fact["id"] for fact in load_facts(checks)] == ["a1", "a2", "a3", "a4"]


def test_a_missing_pdf_is_said_before_anything_is_parsed(tmp_path: Path) -> None:
    checks = tmp_path / "checks.jsonl"
    checks.write_text(json.dumps(FACTS[0]), "utf-8")
    with pytest.raises(FileNotFoundError, match=r"a\.pdf"):
        measure(checks, tmp_path)
