"""`pagemill jobs`: the same answers from the database and over REST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from api.cli.main import app
from tests.api.service.running import Service, running
from workers.store import Document, JobKind, NewDocument
from workers.store.states import Problem


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service without workers."""
    with running(tmp_path) as started:
        yield started


@pytest.fixture(params=["database", "server"])
def jobs(request: pytest.FixtureRequest, service: Service, tmp_path: Path) -> Any:
    """Runs `pagemill jobs` against the one or the other."""
    where = {"database": f"sqlite:///{tmp_path}/store.db", "server": service.url}[request.param]

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["jobs", *arguments, f"--{request.param}", where])

    return call


def accept(service: Service, name: str, number: int = 0) -> Document:
    return service.store.accept(NewDocument("default", name, f"{number:064x}", 10))


def fail(service: Service) -> None:
    """Let the next document fail, as a worker does."""
    claim = service.store.claim([JobKind.PREPARE], "worker", 60)
    assert claim is not None
    service.store.job_failed(claim, Problem("damaged", "It is damaged."))


def test_ls_lists_the_newest_first_and_filters(jobs: Any, service: Service) -> None:
    first = accept(service, "first.pdf", 1)
    fail(service)
    second = accept(service, "second [1].pdf", 2)
    listed = json.loads(jobs("ls", "--json").stdout)["documents"]
    assert [document["id"] for document in listed] == [second.id, first.id]
    failed = json.loads(jobs("ls", "--state", "failed", "--json").stdout)["documents"]
    assert [(document["id"], document["error"]["code"]) for document in failed] == [(first.id, "damaged")]
    assert len(json.loads(jobs("ls", "--limit", "1", "--json").stdout)["documents"]) == 1
    table = jobs("ls").stdout
    assert first.id in table and "second [1].pdf" in table and "queued" in table


def test_ls_goes_on_to_the_limit_over_many_pages(jobs: Any, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.job_access._MOST_AT_ONCE", 3)
    for number in range(8):
        accept(service, f"{number}.pdf", number)
    assert len(json.loads(jobs("ls", "--limit", "7", "--json").stdout)["documents"]) == 7
    assert len(json.loads(jobs("ls", "--limit", "100", "--json").stdout)["documents"]) == 8


def test_show_tells_of_one_document_and_why_it_failed(jobs: Any, service: Service) -> None:
    document = accept(service, "letter.pdf")
    assert json.loads(jobs("show", document.id, "--json").stdout)["queue_position"] == 1
    fail(service)
    text = jobs("show", document.id).stdout
    assert document.id in text and "failed" in text and "It is damaged. (damaged)" in text


def test_cancel_and_retry_and_what_is_refused(jobs: Any, service: Service) -> None:
    document, other = accept(service, "a.pdf", 1), accept(service, "b.pdf", 2)
    cancelled = jobs("cancel", document.id, other.id)
    assert cancelled.exit_code == 0
    assert cancelled.stdout.count("cancelled") == 2
    # A second time changes nothing, and above all removes nothing.
    assert jobs("cancel", document.id).exit_code == 0
    assert service.store.document(document.id).state == "cancelled"
    assert jobs("retry", document.id).exit_code == 0
    assert service.store.document(document.id).state == "queued"
    refused = jobs("retry", "doc_unknown", other.id)
    assert refused.exit_code == 5
    assert "not_found" in refused.stderr
    assert service.store.document(other.id).state == "queued", "one refusal does not stop the others"


def test_what_is_not_there_is_told_in_one_line(jobs: Any, tmp_path: Path) -> None:
    missing = jobs("show", "doc_unknown")
    assert (missing.exit_code, missing.stderr.count("\n")) == (5, 1)
    away = CliRunner().invoke(app, ["jobs", "ls", "--server", "http://127.0.0.1:9"])
    assert away.exit_code == 5
    assert "server_unavailable" in away.stderr
    both = CliRunner().invoke(app, ["jobs", "ls", "--server", "http://x", "--database", "sqlite:///x"])
    assert both.exit_code == 2
