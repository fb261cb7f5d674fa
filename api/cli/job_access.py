"""One way to ask about documents, whether the job store is opened here or a service is asked. Same answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import httpx

    from workers.store import Document, JobStore, PageState

_MOST_AT_ONCE = 200

Answer = dict[str, Any]
"""A document as the REST API describes it."""


class JobRefused(Exception):
    """The store or the service said no; `code` is that of the API."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class JobAccess(Protocol):
    """Documents of one store. Every method raises JobRefused."""

    def list(self, state: str | None, batch: str | None, limit: int) -> Iterator[Answer]:
        """Newest first, without pages."""

    def show(self, document_id: str) -> Answer:
        """With pages."""

    def cancel(self, document_id: str) -> Answer: ...

    def retry(self, document_id: str) -> Answer: ...


@contextmanager
def open_access(database: str | None, server: str | None, api_key: str | None) -> Iterator[JobAccess]:
    """Access over REST if there is a server, else to the job store of the URL or of the settings."""
    if server:
        import httpx

        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            with httpx.Client(base_url=server.rstrip("/"), headers=headers, timeout=30) as client:
                yield _OverRest(client)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise JobRefused("server_unavailable", f"{server} does not answer: {error}") from error
        return
    from sqlalchemy.exc import SQLAlchemyError

    from workers.settings import ServiceSettings
    from workers.store import JobStore, StoreError

    try:
        with JobStore.open(database or ServiceSettings().database(), patience=5) as store:
            yield _InStore(store)
    except StoreError as error:
        raise JobRefused(error.code, error.message) from error
    except (SQLAlchemyError, OSError) as error:
        raise JobRefused("unavailable", f"The job store cannot be opened: {error}") from error


class _OverRest:
    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def list(self, state: str | None, batch: str | None, limit: int) -> Iterator[Answer]:
        query: dict[str, Any] = {name: value for name, value in (("state", state), ("batch", batch)) if value}
        cursor: str | None = None
        while limit > 0:
            more = {"cursor": cursor} if cursor else {}
            page = self._ask("GET", "", params={**query, **more, "limit": min(limit, _MOST_AT_ONCE)})
            yield from page["documents"][:limit]
            limit -= len(page["documents"])
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def show(self, document_id: str) -> Answer:
        return self._ask("GET", f"/{document_id}")

    def cancel(self, document_id: str) -> Answer:
        # DELETE would remove a finished document.
        document = self._ask("GET", f"/{document_id}", params={"pages": False})
        if document["state"] in ("done", "partial", "failed", "cancelled"):
            return document
        return self._ask("DELETE", f"/{document_id}")

    def retry(self, document_id: str) -> Answer:
        return self._ask("POST", f"/{document_id}/retry")

    def _ask(self, method: str, path: str, **options: Any) -> Answer:
        answer = self._client.request(method, f"/v1/documents{path}", **options)
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if answer.is_success and isinstance(body, dict):
            return body
        detail = body.get("detail") if isinstance(body, dict) else None
        raise JobRefused(
            str(body.get("code", "")) or f"http_{answer.status_code}",
            str(detail or f"The service answered {answer.status_code}."),
        )


class _InStore:
    def __init__(self, store: JobStore) -> None:
        self._store = store

    def list(self, state: str | None, batch: str | None, limit: int) -> Iterator[Answer]:
        from workers.store import DocumentState

        wanted = DocumentState(state) if state else None
        cursor: str | None = None
        while limit > 0:
            page = self._store.list_documents(state=wanted, batch=batch, cursor=cursor, limit=min(limit, _MOST_AT_ONCE))
            yield from map(_describe, page.documents)
            limit -= len(page.documents)
            cursor = page.next_cursor
            if cursor is None:
                return

    def show(self, document_id: str) -> Answer:
        with _typed_errors():
            document = self._store.document(document_id)
            return {
                **_describe(document),
                "queue_position": self._store.queue_position(document_id),
                "pages": [_describe_page(page) for page in self._store.pages(document_id)],
            }

    def cancel(self, document_id: str) -> Answer:
        with _typed_errors():
            return _describe(self._store.cancel(document_id))

    def retry(self, document_id: str) -> Answer:
        with _typed_errors():
            return _describe(self._store.retry(document_id))


@contextmanager
def _typed_errors() -> Iterator[None]:
    from workers.store import StoreError

    try:
        yield
    except StoreError as error:
        raise JobRefused(error.code, error.message) from error


def _describe(document: Document) -> Answer:
    return {
        "id": document.id,
        "tenant": document.tenant,
        "name": document.name,
        "state": str(document.state),
        "created_at": _iso(document.created_at),
        "started_at": _iso(document.started_at),
        "finished_at": _iso(document.finished_at),
        "size_bytes": document.size_bytes,
        "sha256": document.sha256,
        "priority": document.priority,
        "batch": document.batch_id,
        "options": document.options.fingerprint(),
        "page_count": document.page_count,
        "pages_total": document.pages_total,
        "pages_done": document.pages_done,
        "pages_failed": document.pages_failed,
        "expired": document.expired,
        "error": _error(document.error_code, document.error),
    }


def _describe_page(page: PageState) -> Answer:
    return {
        "page": page.index + 1,
        "state": str(page.state),
        "route": page.route,
        "why": page.why,
        "seconds": page.seconds,
        "warnings": list(page.warnings),
        "error": _error(page.error_code, page.error),
    }


def _error(code: str | None, message: str | None) -> Answer | None:
    return {"code": code, "message": message or ""} if code else None


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()
