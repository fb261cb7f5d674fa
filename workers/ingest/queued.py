"""Has the work done by workers that share a job store, an artifact store and Redis; no API needed."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pipeline import ParseOptions
from pipeline.errors import Cancelled, UnreadableFile
from pipeline.settings import settings as pipeline_settings
from workers.ingest.errors import is_bad_input
from workers.ingest.results import Part, publish
from workers.ingest.types import FileOpened, FilePages, FileResult, FileState, Report, WorkItem

if TYPE_CHECKING:
    from workers.artifacts import ArtifactStore
    from workers.artifacts.receive import Received
    from workers.settings import ServiceSettings
    from workers.store import Document, JobStore

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0


class QueuedBackend:
    """A `Backend` over the stores and the broker of a service. Documents go on there while this program is stopped.

    Args:
        settings: of the service: database, artifacts, Redis.
        options: for every file.
        identity: names the ingestion, so that a file that was submitted twice is taken once.
        tenant: whose the documents are; those of an API without keys are `default`.
        slots: files under way at a time.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        options: ParseOptions,
        identity: str,
        *,
        tenant: str = "default",
        slots: int = 16,
    ) -> None:
        from workers.artifacts import artifact_store
        from workers.store import JobStore
        from workers.tokens import Tokens

        self._options, self._identity, self._tenant = options, identity, tenant
        self._artifacts: ArtifactStore = artifact_store(settings.artifacts())
        self._stack = ExitStack()
        self._store: JobStore = self._stack.enter_context(JobStore.open(settings.database()))
        tokens = Tokens(settings, self._store, regularly=lambda: False)
        tokens.start()
        self._stack.callback(tokens.stop)
        self.slots = slots

    def process(
        self, item: WorkItem, report: Report, submitted: Callable[[str], None], cancelled: threading.Event
    ) -> FileResult:
        document = self._earlier(item) or self._submit(item)
        submitted(document.id)
        document = self._follow(item, document, report, cancelled)
        folder = None
        if document.state in ("done", "partial"):
            folder = publish(item.file, item.output, document.sha256, self._parts(document.job_key)).path
        return FileResult(
            FileState(document.state.value) if folder else FileState.FAILED,
            folder=folder,
            pages=document.pages_total or 0,
            pages_failed=document.pages_failed,
            error_code=document.error_code if folder else document.error_code or document.state.value,
            error=document.error if folder else document.error or f"It ended {document.state}.",
            bad_input=is_bad_input(document.error_code),
        )

    def close(self) -> None:
        self._stack.close()

    def _earlier(self, item: WorkItem) -> Document | None:
        """The document of an earlier run, if it is still of use."""
        from workers.store import NotFound

        if item.document_id is None:
            return None
        try:
            document = self._store.document(item.document_id)
        except NotFound:
            return None
        return None if document.expired or document.state == "cancelled" else document

    def _submit(self, item: WorkItem) -> Document:
        from workers.store import NewDocument

        received = self._receive(item)
        # Equal for every try of one attempt, also after a crash: the store answers with the same document.
        said = f"{self._identity}\n{item.path}\n{item.version}\n{item.attempt}\n{item.document_id}\n{received.sha256}"
        return self._store.accept(
            NewDocument(
                tenant=self._tenant,
                name=item.file.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                sha256=received.sha256,
                size_bytes=received.size,
                options=self._options,
                idempotency_key=hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest(),
            )
        )

    def _receive(self, item: WorkItem) -> Received:
        from workers.artifacts import receive_file

        try:
            with item.file.open("rb") as file:
                return receive_file(self._artifacts, file, max_bytes=pipeline_settings().max_file_mb * 2**20)
        except OSError as error:
            raise UnreadableFile(f"The file cannot be read ({error.strerror}).") from error

    def _follow(self, item: WorkItem, document: Document, report: Report, cancelled: threading.Event) -> Document:
        """Look until the document has ended."""
        seen: int | None = None
        pause = _FIRST_PAUSE
        while True:
            if document.pages_total:
                finished = document.pages_done + document.pages_failed
                if seen is None:
                    report(FileOpened(item.path, document.pages_total, 0))
                if finished > (seen or 0):
                    report(FilePages(item.path, finished - (seen or 0)))
                    pause = _FIRST_PAUSE
                seen = finished
            if document.state.finished:
                return document
            if cancelled.wait(pause):
                raise Cancelled("Stopped; the workers go on.")
            pause = min(_LONGEST_PAUSE, pause * 1.5)
            document = self._store.document(document.id)

    def _parts(self, job_key: str) -> Iterator[Part]:
        prefix = f"jobs/{job_key}/result/"
        for artifact in self._artifacts.list(prefix):
            yield artifact.key.removeprefix(prefix), self._artifacts.open(artifact.key)
