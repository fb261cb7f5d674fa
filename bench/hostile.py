"""`pagemill bench hostile`: files that break parsers. Each must end in time, typed or valid, leaving nobody.

The time that counts is that of the first answer: the first page stored, or the end of the command. A valid
document has its Markdown, a content list, a middle JSON and a manifest, all readable, and no failed page.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.figures import Report, at_least, at_most
from bench.process_tree import Run, run
from bench.product import parse_command

SECONDS_REACH = 10.0
SECONDS_LIMIT = 600.0
"""When a file is given up altogether. A long document may go on after its first answer."""

BAD_INPUT_EXIT = 3
DONE_EXIT = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """How the product took one file.

    Attributes:
        code: the typed error, None for a document.
        first_answer: seconds until the first page was stored or the command ended.
        seconds: until the command ended.
        left_behind: processes that outlived the command.
        fault: what is wrong with the ending, "" if nothing.
    """

    file: str
    code: str | None
    first_answer: float
    seconds: float
    left_behind: tuple[str, ...]
    fault: str


def measure(folder: Path) -> Report:
    """Parse every PDF of `folder`, each with a command of its own.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(folder.glob("*.pdf"))
    if not files:
        raise FileNotFoundError(f"no PDF in {folder}")
    expectations = load_expectations()
    endings = [_end(file, expectations.get(file.name, {"document": True})) for file in files]
    return Report(
        "hostile",
        (
            at_least("files_as_expected", sum(not ending.fault for ending in endings), "files", len(endings)),
            at_most("slowest_first_answer", max(e.first_answer for e in endings), "seconds", SECONDS_REACH),
            at_most("processes_left_behind", sum(len(e.left_behind) for e in endings), "processes", 0),
        ),
        {"files": [asdict(ending) for ending in endings]},
        tuple(f"{e.file}: {e.fault}" for e in endings if e.fault)
        + tuple(
            f"{e.file}: first answer after {e.first_answer:.1f} s" for e in endings if e.first_answer > SECONDS_REACH
        )
        + tuple(f"{e.file}: left behind {', '.join(e.left_behind)}" for e in endings if e.left_behind),
    )


def load_expectations() -> dict[str, dict[str, Any]]:
    """The table beside this module, by file name."""
    return tomllib.loads(Path(__file__).with_name("hostile.toml").read_text("utf-8"))


def _end(file: Path, expected: Mapping[str, Any]) -> Ending:
    first_answer: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch)

        def watch(seconds: float) -> None:
            if not first_answer and any(output.glob("*/.pagemill/pages/*.json")):
                first_answer.append(seconds)

        finished = run(parse_command([file], output), timeout=SECONDS_LIMIT, on_sample=watch)
        code, fault = judge(finished, expected)
    return Ending(
        file=file.name,
        code=code,
        first_answer=round((first_answer or [finished.seconds])[0], 2),
        seconds=round(finished.seconds, 2),
        left_behind=finished.left_behind,
        fault=fault,
    )


def judge(finished: Run, expected: Mapping[str, Any]) -> tuple[str | None, str]:
    """The typed error of a run of `pagemill parse --json` on one file, and what is wrong with the ending.

    Must be called while the output is still there.
    """
    if finished.returncode is None:
        return None, f"no end within {SECONDS_LIMIT:.0f} s"
    try:
        (document,) = json.loads(finished.stdout)["documents"]
    except (ValueError, KeyError, TypeError):
        last = finished.stderr.strip().splitlines()[-1:] or ["nothing on standard error"]
        return None, f"no summary, exit {finished.returncode}: {last[0]}"
    if error := document.get("error"):
        code = error["code"]
        if code not in expected.get("codes", ()):
            return code, f"unexpected error {code}: {error['message']}"
        return code, "" if finished.returncode == BAD_INPUT_EXIT else f"exit {finished.returncode} for {code}"
    if not expected.get("document"):
        return None, f"a document where {' or '.join(expected['codes'])} was expected"
    if document["status"] != "done" or finished.returncode != DONE_EXIT:
        return None, f"status {document['status']}, exit {finished.returncode}"
    return None, _fault_of_document(Path(document["folder"]))


def _fault_of_document(folder: Path) -> str:
    stem = folder.name
    if not (folder / f"{stem}.md").is_file():
        return "no Markdown"
    for name in (f"{stem}_content_list.json", f"{stem}_middle.json", "manifest.json"):
        try:
            json.loads((folder / name).read_text("utf-8"))
        except (OSError, ValueError) as error:
            return f"{name}: {error}"
    return ""
