"""Has the work done by a running service, over its REST API."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from pipeline import ParseOptions
from pipeline.errors import Cancelled, DiskFull, PipelineError, UnreadableFile
from workers.ingest.errors import IngestError, ServerUnavailable, is_bad_input
from workers.ingest.results import Part, publish
from workers.ingest.types import FileOpened, FilePages, FileResult, FileState, Report, WorkItem

if TYPE_CHECKING:
    import httpx

_FINISHED = {"done", "partial", "failed", "cancelled"}
_WAIT_SECONDS = 2
"""How long the service may hold an upload's answer back for a document that is done at once."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
_TIMEOUT_SECONDS = 60.0


class RemoteBackend:
    """A `Backend` over a service's REST API. Documents go on there while this program is stopped.

    Args:
        server: URL of the service.
        options: for every file.
        identity: names the ingestion, so that a file that was sent twice is taken once.
        key: API key, where the service asks for one.
        slots: files under way at a time.
        patience: how long a service that does not answer, or has no room, is asked again, seconds.
    """

    def __init__(
        self,
        server: str,
        options: ParseOptions,
        identity: str,
        *,
        key: str | None = None,
        slots: int = 16,
        patience: float = 300,
    ) -> None:
        import httpx

        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            self._client = httpx.Client(base_url=server.rstrip("/"), headers=headers, timeout=_TIMEOUT_SECONDS)
        except httpx.InvalidURL as error:
            raise IngestError(f"{server} is no address of a service: {error}.") from None
        self._options, self._identity, self._patience = options, identity, patience
        self.slots = slots

    def process(
        self, item: WorkItem, report: Report, submitted: Callable[[str], None], cancelled: threading.Event
    ) -> FileResult:
        status = self._earlier(item, cancelled) or self._submit(item, cancelled)
        submitted(status["id"])
        status = self._follow(item, status, report, cancelled)
        if status["state"] in ("failed", "cancelled"):
            problem = status.get("error") or {
                "code": status["state"],
                "message": f"The service ended it {status['state']}.",
            }
            return FileResult(
                FileState.FAILED,
                pages=status.get("pages_total") or 0,
                pages_failed=status.get("pages_failed") or 0,
                error_code=problem["code"],
                error=problem["message"],
                bad_input=is_bad_input(problem["code"]),
            )
        return self._fetch(item, status, cancelled)

    def close(self) -> None:
        self._client.close()

    def _earlier(self, item: WorkItem, cancelled: threading.Event) -> dict[str, Any] | None:
        """The document of an earlier run, if the service still has it."""
        if item.document_id is None:
            return None
        answer = self._ask("GET", f"/v1/documents/{item.document_id}", cancelled, params={"pages": False})
        if answer.status_code == 404:
            return None
        status = _body(answer)
        return None if status.get("expired") or status["state"] == "cancelled" else status

    def _submit(self, item: WorkItem, cancelled: threading.Event) -> dict[str, Any]:
        # Equal for every try of one attempt, also after a crash: the service answers with the same document.
        said = f"{self._identity}\n{item.path}\n{item.version}\n{item.attempt}\n{item.document_id}"
        headers = {"Idempotency-Key": hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()}
        options = self._options
        form = {"route": str(options.route), "pages": options.pages, "quality": str(options.quality)}
        if options.password:
            form["password"] = options.password
        if options.force:
            form["force"] = "true"
        name = item.file.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

        def send() -> httpx.Response:
            with _opened(item.file) as file:
                return self._client.post(
                    "/v1/documents",
                    params={"wait": _WAIT_SECONDS},
                    headers=headers,
                    data=form,
                    files={"files": (name, file, "application/octet-stream")},
                )

        documents: list[dict[str, Any]] = _body(self._patiently(send, cancelled))["documents"]
        return documents[0]

    def _follow(
        self, item: WorkItem, status: dict[str, Any], report: Report, cancelled: threading.Event
    ) -> dict[str, Any]:
        """Ask until the document has ended."""
        seen: int | None = None
        pause = _FIRST_PAUSE
        while True:
            if status.get("pages_total"):
                finished = status["pages_done"] + status["pages_failed"]
                if seen is None:
                    report(FileOpened(item.path, status["pages_total"], 0))
                if finished > (seen or 0):
                    report(FilePages(item.path, finished - (seen or 0)))
                    pause = _FIRST_PAUSE
                seen = finished
            if status["state"] in _FINISHED:
                return status
            if cancelled.wait(pause):
                raise Cancelled("Stopped; the service goes on.")
            pause = min(_LONGEST_PAUSE, pause * 1.5)
            status = _body(self._ask("GET", f"/v1/documents/{status['id']}", cancelled, params={"pages": False}))

    def _fetch(self, item: WorkItem, status: dict[str, Any], cancelled: threading.Event) -> FileResult:
        path = f"/v1/documents/{status['id']}/result"
        with tempfile.TemporaryFile() as archive:

            def receive() -> httpx.Response:
                archive.seek(0)
                archive.truncate()
                with self._client.stream("GET", path, params={"format": "zip"}) as answer:
                    if answer.status_code == 200:
                        _copy(answer, archive)
                    else:
                        answer.read()
                    return answer

            answer = self._patiently(receive, cancelled)
            if answer.status_code != 200:
                _body(answer)
            try:
                with zipfile.ZipFile(cast(BinaryIO, archive)) as opened:
                    folder = publish(item.file, item.output, status["sha256"], _parts(opened))
            except zipfile.BadZipFile as error:
                raise ServerUnavailable(f"The service sent a result that is no zip file: {error}.") from error
        problem = status.get("error") or {}
        return FileResult(
            FileState(status["state"]),
            folder=folder.path,
            pages=status["pages_total"] or 0,
            pages_failed=status["pages_failed"],
            error_code=problem.get("code"),
            error=problem.get("message"),
        )

    def _ask(self, method: str, path: str, cancelled: threading.Event, **options: Any) -> httpx.Response:
        return self._patiently(lambda: self._client.request(method, path, **options), cancelled)

    def _patiently(self, send: Callable[[], httpx.Response], cancelled: threading.Event) -> httpx.Response:
        """Send, and again while the service is away, restarts or has no room.

        Raises:
            Cancelled: told to stop meanwhile. ServerUnavailable: it took longer than `patience`.
        """
        import httpx

        deadline = time.monotonic() + self._patience
        pause = 0.5
        while True:
            try:
                answer = send()
                if answer.status_code not in (408, 429, 500, 502, 503, 504):
                    return answer
                why = f"it answered {answer.status_code}"
                after = answer.headers.get("retry-after", "")
                pause = max(pause, min(float(after), 60.0)) if after.isdigit() else pause
            except httpx.TransportError as error:
                why = f"{type(error).__name__}: {error}"
            if time.monotonic() + pause > deadline:
                raise ServerUnavailable(
                    f"The service at {self._client.base_url} does not do its work ({why}). "
                    "Run the same command again once it does: nothing is lost."
                )
            if cancelled.wait(pause):
                raise Cancelled("Stopped; the service goes on.")
            pause = min(pause * 2, 15.0)


def _body(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object of an answer.

    Raises:
        PipelineError: the service refused the document, with the code that it gave.
        IngestError: it refuses everything, or is none of ours.
    """
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise IngestError(f"{answer.url.copy_with(query=None)} answered {answer.status_code} and no JSON: no Pagemill?")
    if answer.is_success:
        return body
    code, detail = str(body.get("code", "")), str(body.get("detail", ""))
    if answer.status_code in (401, 403, 404, 405, 421) and code != "not_found":
        raise IngestError(f"The service refuses ({answer.status_code}): {detail}")
    raise _refusal(code or f"http_{answer.status_code}", detail or f"The service answered {answer.status_code}.")


def _refusal(code: str, message: str) -> PipelineError:
    """An error with the code of the service's answer."""
    kind = type("Refused", (PipelineError,), {"code": code, "bad_input": is_bad_input(code)})
    error: PipelineError = kind(message)
    return error


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    try:
        with file.open("rb") as opened:
            yield opened
    except OSError as error:
        raise UnreadableFile(f"The file cannot be read ({error.strerror}).") from error


def _copy(answer: httpx.Response, target: Any) -> None:
    try:
        for chunk in answer.iter_bytes(1 << 18):
            target.write(chunk)
        target.flush()
    except OSError as error:
        raise DiskFull.if_caused_by(error) or error from error


def _parts(archive: zipfile.ZipFile) -> Iterator[Part]:
    for member in archive.infolist():
        if not member.is_dir():
            yield member.filename, cast(BinaryIO, archive.open(member))
