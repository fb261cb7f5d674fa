"""`pagemill bench quality`: how many small facts about real pages the Markdown bears out.

The facts and their checker are those of olmocr's bench: a sentence is present, a header is absent, one
sentence comes before another, a table cell has a certain neighbour. Facts about formulas need a browser
and are left out. A document without any text fails each of its facts, so that silence is never "absent".
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import peer, product
from bench.extras import require
from bench.figures import Report, at_least

FACTS_REACH = 40
SKIPPED_KINDS = frozenset({"math"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """One fact, judged. `reason` is the checker's own and empty if the fact holds."""

    id: str
    pdf: str
    kind: str
    holds: bool
    reason: str


def measure(
    checks: Path,
    pdfs: Path,
    *,
    arguments: tuple[str, ...] = (),
    with_peer: bool = False,
    keep: Path | None = None,
) -> Report:
    """Parse every PDF that a fact names and judge all facts.

    Args:
        checks: one fact a line, JSON.
        pdfs: folder of the PDFs that the facts name.
        arguments: further options for `pagemill parse`.
        with_peer: also judge bare MinerU on the same files, for the details.
        keep: where to leave what was parsed; a temporary folder otherwise.

    Raises:
        ModuleNotFoundError: the extra is not installed.
        FileNotFoundError: `checks` or a PDF that it names is missing.
    """
    require("olmocr", "rapidfuzz", "fuzzysearch", "bs4", "playwright")
    facts = load_facts(checks)
    files = [pdfs / name for name in dict.fromkeys(fact["pdf"] for fact in facts)]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{checks} names {file.name}, which is not in {pdfs}")
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        parsed, _ = product.parse_files(files, keep or Path(scratch) / "ours", *arguments)
        verdicts = judge(facts, {document.input.name: document.markdown for document in parsed})
        details["documents"] = {
            document.input.name: {"status": document.status, "error": document.error} for document in parsed
        }
        if with_peer:
            markdown, _ = peer.parse_files(files, Path(scratch) / "peer")
            theirs = judge(facts, {file.name: text for file, text in markdown.items()})
            details["peer"] = {"name": "MinerU flash", "facts_passed": sum(v.holds for v in theirs)}
    failed = [verdict for verdict in verdicts if not verdict.holds]
    return Report(
        "quality",
        (at_least("facts_passed", len(verdicts) - len(failed), "facts", FACTS_REACH),),
        {
            "facts": len(verdicts),
            "by_kind": _passed_of(verdicts, lambda verdict: verdict.kind),
            "by_file": _passed_of(verdicts, lambda verdict: verdict.pdf),
            "failures": [{"id": v.id, "pdf": v.pdf, "kind": v.kind, "reason": v.reason} for v in failed],
            **details,
        },
        tuple(f"{v.id} ({v.kind}): {v.reason}" for v in failed),
    )


def load_facts(checks: Path) -> list[dict[str, Any]]:
    """The facts of a JSON-lines file, without the kinds that are left out."""
    facts = [json.loads(line) for line in checks.read_text("utf-8").splitlines() if line.strip()]
    return [fact for fact in facts if fact["type"] not in SKIPPED_KINDS]


def judge(facts: Iterable[Mapping[str, Any]], markdown: Mapping[str, str]) -> list[Verdict]:
    """Hold each fact against the Markdown of its PDF (by file name)."""
    # One by one: the checker's own loader reads a whole file and starts a browser if a formula is in it.
    from olmocr.bench.tests import load_single_test

    verdicts = []
    for fact in facts:
        text = markdown.get(fact["pdf"], "")
        if text.strip():
            holds, reason = load_single_test(dict(fact)).run(text)
        else:
            holds, reason = False, "the document has no text"
        verdicts.append(Verdict(fact["id"], fact["pdf"], fact["type"], holds, "" if holds else reason))
    return verdicts


def _passed_of(verdicts: Iterable[Verdict], key: Callable[[Verdict], str]) -> dict[str, dict[str, int]]:
    groups: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        group = groups.setdefault(key(verdict), {"passed": 0, "of": 0})
        group["passed"] += verdict.holds
        group["of"] += 1
    return groups
