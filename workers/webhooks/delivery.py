"""Makes the calls that are due."""

from __future__ import annotations

import json
import logging
import random
import ssl
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from workers.webhooks.address import NameNotResolved, Target, WebhookRefused, resolve
from workers.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from workers.store import Delivery, Document, JobStore

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_AT_ONCE = 8
_HOLD_SECONDS = 120.0
"""A call in progress is taken by nobody else; longer than the longest wait for a receiver, told several times over
(name, connection, request, answer)."""

_JITTER = 0.2
_LONGEST_RETRY_AFTER = 86_400.0


class Webhooks:
    """Delivers the calls of a job store. Any number may run beside each other, in one process or several."""

    def __init__(self, store: JobStore, settings: WebhookSettings | None = None) -> None:
        self._store = store
        self._settings = settings or WebhookSettings()

    def run(self, stop: threading.Event) -> None:
        """Deliver what is due until `stop` is set; then finish the calls that are under way."""
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="webhook") as threads:
            while not stop.is_set():
                due: list[Delivery] = []
                try:
                    if len(running) < _AT_ONCE:
                        due = self._store.due_deliveries(_AT_ONCE - len(running), _HOLD_SECONDS)
                except Exception:
                    log.exception("webhooks could not be read from the store")
                running |= {threads.submit(self._deliver_safely, delivery) for delivery in due}
                # A slow receiver keeps one thread, never the calls to others.
                running = wait(running, timeout=0, return_when=FIRST_COMPLETED).not_done
                if not due:
                    stop.wait(_POLL_SECONDS)

    def deliver_due(self) -> int:
        """Make the calls that are due now, and say how many those were."""
        due = self._store.due_deliveries(_AT_ONCE, _HOLD_SECONDS)
        for delivery in due:
            self._deliver(delivery)
        return len(due)

    def _deliver_safely(self, delivery: Delivery) -> None:
        try:
            self._deliver(delivery)
        except Exception:
            # Its hold runs out, and it is tried again.
            log.exception("a webhook of document %s could not be delivered", delivery.document_id)

    def _deliver(self, delivery: Delivery) -> None:
        from workers.store import NotFound

        try:
            document = self._store.document(delivery.document_id)
        except NotFound:
            return  # removed meanwhile, and its deliveries with it
        problem = self._call(delivery, document)
        if problem is None:
            self._store.delivered(delivery.id)
            return
        retry_in = None if problem.final else self._pause(delivery.attempt, problem.retry_after)
        log.warning(
            "webhook of document %s, try %d: %s; %s",
            delivery.document_id,
            delivery.attempt,
            problem.text,
            "given up" if retry_in is None else f"again in {retry_in:.0f} s",
        )
        self._store.delivery_failed(delivery.id, problem.text, retry_in)

    def _call(self, delivery: Delivery, document: Document) -> _Problem | None:
        import httpx

        try:
            target = resolve(delivery.url, self._settings)
        except WebhookRefused as error:
            return _Problem(error.message, final=True)
        except NameNotResolved as error:
            return _Problem(error.message)
        body = json.dumps(payload(delivery, document), ensure_ascii=False).encode()
        headers = signed_headers(f"evt_{delivery.event.id}", body, self._settings.webhook_secrets)
        try:
            status, retry_after = _post(target, body, headers, self._settings.webhook_timeout_seconds)
        except httpx.HTTPError as error:
            return _Problem(f"{type(error).__name__}: {error}"[:300])
        if 200 <= status < 300:
            return None
        return _Problem(f"The receiver answered {status}.", final=status == 410, retry_after=retry_after)

    def _pause(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds to the next try; None after the last one."""
        pauses = self._settings.webhook_retry_seconds
        if attempt > len(pauses):
            return None
        pause = pauses[attempt - 1] * (1 + random.uniform(0, _JITTER))
        return max(pause, min(retry_after or 0.0, _LONGEST_RETRY_AFTER))


class _Problem:
    """Why a call was not taken; `final` if another try cannot help."""

    def __init__(self, text: str, *, final: bool = False, retry_after: float | None = None) -> None:
        self.text, self.final, self.retry_after = text, final, retry_after


def payload(delivery: Delivery, document: Document) -> dict[str, Any]:
    """The body: what happened, when, and how the document stands."""
    return {
        "type": f"document.{delivery.event.kind}",
        "timestamp": datetime.fromtimestamp(delivery.event.at, UTC).isoformat(),
        "data": {
            "id": document.id,
            "name": document.name,
            "state": str(document.state),
            "batch_id": document.batch_id,
            "sha256": document.sha256,
            "pages_total": document.pages_total,
            "pages_done": document.pages_done,
            "pages_failed": document.pages_failed,
            "error_code": document.error_code,
            "error": document.error,
        },
    }


def signed_headers(message_id: str, body: bytes, secrets: tuple[str, ...]) -> dict[str, str]:
    """Headers of the Standard Webhooks specification, with a signature (HMAC-SHA256) for each secret."""
    from standardwebhooks import Webhook

    now = datetime.now(UTC).replace(microsecond=0)
    signatures = [Webhook(secret).sign(message_id, now, body.decode()) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def _post(target: Target, body: bytes, headers: dict[str, str], seconds: float) -> tuple[int, float | None]:
    """Status and Retry-After, seconds. Connects to the checked address; redirects are not followed."""
    import httpx

    url = httpx.URL(target.url)
    host = f"[{target.host}]" if ":" in target.host else target.host
    named = host if url.port is None else f"{host}:{target.port}"
    headers = {"content-type": "application/json", "user-agent": "pagemill", "host": named, **headers}
    # No proxy of the environment: it would resolve the name by itself.
    with (
        httpx.Client(timeout=seconds, trust_env=False, follow_redirects=False, verify=_trusted()) as client,
        client.stream(
            "POST",
            url.copy_with(host=target.address, port=target.port),
            content=body,
            headers=headers,
            # The certificate must be that of the name, not of the address.
            extensions={"sni_hostname": target.host},
        ) as answer,
    ):
        after = answer.headers.get("retry-after", "")
        return answer.status_code, float(after) if after.isdigit() else None


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Certificates of the system (and SSL_CERT_FILE, for an authority of one's own) and of certifi."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
