"""Drive the product the way a user does: `pagemill parse` in a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.process_tree import Run, run


@dataclass(frozen=True, slots=True)
class Parsed:
    """What `pagemill parse --json` said about one input, with its Markdown.

    Attributes:
        status: done, partial or failed, as the command said it; "no_answer" if it said nothing.
        error: `{code, message}` or None.
        summary: the command's own object for this document.
        folder: where the output lies, None if there is none.
        markdown: "" if there is none.
    """

    input: Path
    status: str
    error: Mapping[str, str] | None
    summary: Mapping[str, Any]
    folder: Path | None
    markdown: str


def parse_files(
    files: Sequence[Path], output: Path, *arguments: str, timeout: float = 3600.0
) -> tuple[list[Parsed], Run]:
    """Parse `files` with one call of the command; one `Parsed` for each, in their order.

    Args:
        output: the folder for `-o`.
        arguments: further options of `pagemill parse`.
        timeout: seconds for the whole call.
    """
    finished = run(parse_command(files, output, *arguments), timeout=timeout)
    try:
        documents = json.loads(finished.stdout)["documents"]
    except (ValueError, KeyError, TypeError):
        documents = []
    by_input = {Path(document["input"]).resolve(): document for document in documents}
    return [_parsed(file, by_input.get(file.resolve())) for file in files], finished


def parse_command(files: Sequence[Path], output: Path, *arguments: str) -> list[str]:
    """The command line that parses `files` into `output` and prints its summary as JSON."""
    options = ["-o", str(output), "--json", "--force", *arguments]
    return [sys.executable, "-m", "api.cli.main", "parse", *options, "--", *map(str, files)]


def _parsed(file: Path, document: Mapping[str, Any] | None) -> Parsed:
    if document is None:
        return Parsed(file, "no_answer", None, {}, None, "")
    folder = Path(document["folder"]) if document.get("folder") else None
    markdown = ""
    if folder is not None and folder.is_dir():
        markdown = "\n".join(path.read_text("utf-8") for path in sorted(folder.glob("*.md")))
    return Parsed(file, document["status"], document.get("error"), document, folder, markdown)
