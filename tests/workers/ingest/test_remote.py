"""Ingestion by a running service, over its REST API."""

from __future__ import annotations

import hashlib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pipeline import ParseOptions, parse
from pipeline.errors import PipelineError
from tests.api.service.running import Service, running
from tests.documents import text_pdf
from tests.workers.servers import free_port, wait_for
from tests.workers.webhooks.receiver import receiver
from workers.ingest import IngestError, IngestEvent, Ingestion, Selection, Summary
from workers.ingest.remote import RemoteBackend
from workers.ingest.types import FileOpened, FilePages
from workers.runtime import EmbeddedRuntime
from workers.settings import ServiceSettings


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    return folder


def ingest(
    source: Path,
    out: Path,
    server: str,
    *,
    key: str | None = None,
    patience: float = 60,
    stop: threading.Event | None = None,
    events: list[IngestEvent] | None = None,
    retry_failed: bool = False,
) -> Summary:
    with Ingestion(source, out, Selection(recursive=True), ParseOptions()) as ingestion:
        backend = RemoteBackend(server, ingestion.options, ingestion.identity(), key=key, patience=patience)
        try:
            report = (events if events is not None else []).append
            summary = ingestion.run(backend, report, stop=stop, retry_failed=retry_failed)
        finally:
            backend.close()
    assert summary.reconciles
    return summary


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that parses."""
    folder = tmp_path_factory.mktemp("service")
    settings = ServiceSettings(data_dir=folder)
    with (
        running(folder, settings) as started,
        EmbeddedRuntime(settings, 1, store=started.store, artifacts=started.artifacts),
    ):
        yield started


def test_results_are_those_of_a_parse_on_this_machine(working: Service, source: Path, tmp_path: Path) -> None:
    text_pdf(source / "a.pdf", pages=3)
    text_pdf(source / "below" / "b é.pdf", pages=1)
    (source / "bad.pdf").write_bytes(b"no document")
    events: list[IngestEvent] = []
    summary = ingest(source, tmp_path / "out", working.url, events=events)
    assert (summary.found, summary.done, summary.failed, summary.bad_input, summary.pages) == (3, 2, 1, 1, 4)
    assert '"not_a_pdf"' in summary.failures.read_text("utf-8")
    assert {(e.path, e.pages) for e in events if isinstance(e, FileOpened)} == {("a.pdf", 3), ("below/b é.pdf", 1)}
    assert sum(event.count for event in events if isinstance(event, FilePages)) == 4
    here = parse(source / "a.pdf", tmp_path / "here", workers=1)
    for suffix in (".md", "_content_list.json", "_middle.json"):
        assert (tmp_path / "out" / "a" / f"a{suffix}").read_bytes() == (here.folder / f"a{suffix}").read_bytes()
    assert "Chapter 1" in (tmp_path / "out" / "below" / "b é" / "b é.md").read_text("utf-8")
    assert not (tmp_path / "out" / "a" / ".pagemill").exists()
    # The next run asks the service for nothing, the one after a local parse neither.
    before = len(working.store.list_documents(limit=1000).documents)
    again = ingest(source, tmp_path / "out", working.url)
    assert (again.found, again.skipped, again.failed_earlier) == (3, 2, 1)
    assert len(working.store.list_documents(limit=1000).documents) == before
    assert parse(source / "a.pdf", tmp_path / "out", workers=1).unchanged
    retried = ingest(source, tmp_path / "out", working.url, retry_failed=True)
    assert (retried.skipped, retried.failed, retried.failed_earlier) == (2, 1, 0)
    assert len(working.store.list_documents(limit=1000).documents) == before + 1


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Service]:
    """A service without workers: what is accepted stays queued."""
    with running(made(tmp_path / "service")) as started:
        yield started


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def stop_once_submitted(source: Path, out: Path, service: Service, count: int, unlike: str = "") -> Summary:
    """Ingest until the manifest knows so many documents of the service, then stop."""
    stop = threading.Event()
    summaries: list[Summary] = []
    thread = threading.Thread(target=lambda: summaries.append(ingest(source, out, service.url, stop=stop)))
    thread.start()
    wait_for(lambda: len(set(known(out)) - {unlike}) == count, "every file is submitted", 60)
    stop.set()
    thread.join(30)
    return summaries[0]


def known(out: Path, statement: str = "SELECT document_id FROM files WHERE document_id IS NOT NULL") -> list[str]:
    try:
        with sqlite3.connect(out / ".pagemill-ingest" / "manifest.db", timeout=10) as db:
            return [row[0] for row in db.execute(statement).fetchall()]
    except sqlite3.OperationalError:
        return []


def test_what_was_sent_is_not_sent_again_after_an_interruption(idle: Service, source: Path, tmp_path: Path) -> None:
    for number in range(5):
        (source / f"{number}.pdf").write_bytes(b"%%PDF-1.4 %d" % number)
    out = tmp_path / "out"
    first = stop_once_submitted(source, out, idle, 5)
    assert (first.left, first.interrupted) == (5, True)
    sent = {document.id for document in idle.store.list_documents().documents}
    assert len(sent) == 5
    stop_once_submitted(source, out, idle, 5)
    # As if it had been killed after the service took them, before it wrote that down.
    known(out, "UPDATE files SET document_id = NULL RETURNING id")
    stop_once_submitted(source, out, idle, 5)
    assert {document.id for document in idle.store.list_documents().documents} == sent == set(known(out))


def test_a_document_that_the_service_has_lost_or_cancelled_is_sent_anew(
    idle: Service, source: Path, tmp_path: Path
) -> None:
    (source / "a.pdf").write_bytes(b"%PDF-1.4")
    out = tmp_path / "out"
    stop_once_submitted(source, out, idle, 1)
    (first,) = known(out)
    idle.store.cancel(first)
    idle.store.remove(first)
    stop_once_submitted(source, out, idle, 1, unlike=first)
    (second,) = known(out)
    assert [document.id for document in idle.store.list_documents().documents] == [second]


def test_a_service_that_is_away_ends_the_run_and_nothing_is_lost(source: Path, tmp_path: Path) -> None:
    (source / "a.pdf").write_bytes(b"%PDF-1.4")
    with pytest.raises(IngestError, match="nothing is lost") as away:
        ingest(source, tmp_path / "out", "http://127.0.0.1:9", patience=1)
    assert away.value.code == "server_unavailable"


def test_a_service_that_comes_up_late_is_waited_for(idle: Service, source: Path, tmp_path: Path) -> None:
    (source / "a.pdf").write_bytes(b"%PDF-1.4")
    out, stop, port = tmp_path / "out", threading.Event(), free_port()
    thread = threading.Thread(target=lambda: ingest(source, out, f"http://127.0.0.1:{port}", stop=stop))
    thread.start()
    wait_for(lambda: (out / ".pagemill-ingest" / "manifest.db").exists(), "the ingestion has begun")
    with forwarded(port, idle.port):
        wait_for(lambda: len(known(out)) == 1, "the file is submitted", 60)
        stop.set()
        thread.join(30)
    assert len(idle.store.list_documents().documents) == 1


@contextmanager
def forwarded(port: int, target: int) -> Iterator[None]:
    """From here on, connections to `port` lead to `target`."""
    listening = socket.create_server(("127.0.0.1", port))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.create_connection(("127.0.0.1", target))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_a_key_that_is_not_known_ends_the_run(source: Path, tmp_path: Path) -> None:
    (source / "a.pdf").write_bytes(b"%PDF-1.4")
    with running(made(tmp_path / "service"), keys_file=keys_of_somebody_else(tmp_path / "keys.toml")) as service:
        with pytest.raises(IngestError, match="401"):
            ingest(source, tmp_path / "out", service.url, key="wrong")
        assert service.store.list_documents().documents == ()


def keys_of_somebody_else(path: Path) -> Path:
    digest = hashlib.sha256(b"a-key-of-the-tests").hexdigest()
    path.write_text(f'[[keys]]\ntenant = "tests"\nsha256 = "{digest}"\n')
    return path


def test_another_server_than_ours_ends_the_run(source: Path, tmp_path: Path) -> None:
    (source / "a.pdf").write_bytes(b"%PDF-1.4")
    with receiver((200, {})) as other, pytest.raises(PipelineError, match="no Pagemill"):
        ingest(source, tmp_path / "out", other.url(""), patience=1)
