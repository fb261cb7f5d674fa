"""Files that broke other parsers: each ends in good time with the right code or a valid document."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pipeline import DocumentFinished, PageFinished, PipelineError, stream
from pipeline.processes import PageProcesses

CODES = {"empty.pdf": "empty_file", "fake.pdf": "not_a_pdf", "password.pdf": "encrypted"}
VALID = [
    "2400dpi.pdf",
    "blank.pdf",
    "copy-protected.pdf",
    "embedded-cmap-cidfont.pdf",
    "failure-after-repair.pdf",
    "no_contents.pdf",
]


@pytest.mark.parametrize("name", sorted(CODES))
def test_hostile_files_that_cannot_be_parsed_have_their_code(
    corpus: Path, tmp_path: Path, processes: PageProcesses, name: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        list(stream(corpus / "hostile" / name, tmp_path, processes=processes))
    assert caught.value.code == CODES[name]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", VALID)
def test_hostile_files_that_are_valid_become_documents(
    corpus: Path, tmp_path: Path, processes: PageProcesses, name: str
) -> None:
    started = time.monotonic()
    first_page_after = None
    documents = []
    for event in stream(corpus / "hostile" / name, tmp_path, processes=processes):
        if isinstance(event, PageFinished) and first_page_after is None:
            first_page_after = time.monotonic() - started
        if isinstance(event, DocumentFinished):
            documents.append(event.document)
    assert documents[0].status == "done"
    assert documents[0].markdown_path.is_file()
    # Not a measure of speed: a hang is what this catches.
    assert first_page_after is not None
    assert first_page_after < 60
