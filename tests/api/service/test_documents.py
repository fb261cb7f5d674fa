"""The life of a document as its client sees it. A few lines play the worker, so that every step can be looked at."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pipeline.document import BadPage
from tests.api.service.running import Service
from tests.workers.store.work import do_all, do_pages, do_window, open_document, take
from workers.store import JobKind
from workers.store.states import Problem


def submit(client: httpx.Client, content: bytes = b"%PDF-1.4", **options: str) -> str:
    answer = client.post("/v1/documents", files={"files": ("report.pdf", content)}, data=options)
    assert answer.status_code in (200, 202), answer.text
    return str(answer.json()["documents"][0]["id"])


def events(client: httpx.Client, document: str, **headers: str) -> Iterator[dict[str, Any]]:
    """Events as they come, until the stream ends."""
    with client.stream("GET", f"/v1/documents/{document}/events", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for block in "".join(stream.iter_text()).split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" in fields:
                yield {"id": int(fields["id"]), "event": fields["event"], "data": json.loads(fields["data"])}


def test_progress_is_told_page_by_page(service: Service, client: httpx.Client) -> None:
    document = submit(client)
    assert client.get(f"/v1/documents/{document}").json()["queue_position"] == 1
    open_document(service.store, 6, (BadPage(5, "page_too_big", "Page 6 is too big."),))
    shown = client.get(f"/v1/documents/{document}").json()
    assert (shown["state"], shown["pages_total"], shown["pages_done"], shown["pages_failed"]) == ("running", 6, 0, 1)
    do_window(service.store, take(service.store, JobKind.PAGE))
    shown = client.get(f"/v1/documents/{document}").json()
    assert [page["state"] for page in shown["pages"]] == ["done", *["queued"] * 4, "failed"]
    assert (shown["pages"][0]["page"], shown["pages"][0]["route"]) == (1, "flash")
    assert shown["pages"][5]["error"] == {"code": "page_too_big", "message": "Page 6 is too big."}
    assert shown["queue_position"] == 0
    do_pages(service.store)
    service.store.assembled(take(service.store, JobKind.ASSEMBLE))
    shown = client.get(f"/v1/documents/{document}").json()
    assert (shown["state"], shown["pages_done"], shown["queue_position"]) == ("partial", 5, None)
    assert shown["finished_at"] >= shown["created_at"]
    assert client.get(f"/v1/documents/{document}", params={"pages": False}).json()["pages"] is None


def test_events_come_as_they_happen_and_end_with_the_document(service: Service, client: httpx.Client) -> None:
    document = submit(client)
    worker = threading.Thread(target=do_all, args=(service.store, 3))
    with client.stream("GET", f"/v1/documents/{document}/events") as stream:
        lines = stream.iter_lines()
        assert "event: accepted" in (next(lines) for _ in range(6))
        worker.start()
        kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    worker.join()
    assert [kind for kind in kinds if kind == "page"] == ["page"] * 3
    assert kinds[-1] == "done"


def test_a_stream_goes_on_after_the_last_event_seen(service: Service, client: httpx.Client) -> None:
    document = submit(client)
    do_all(service.store, 3)
    whole = list(events(client, document))
    ids = [event["id"] for event in whole]
    assert ids == sorted(set(ids))
    rest = list(events(client, document, **{"Last-Event-ID": str(ids[2])}))
    assert rest == whole[3:]
    over = client.get(f"/v1/documents/{document}/events", headers={"Last-Event-ID": str(ids[-1])})
    assert over.status_code == 204
    bad = client.get(f"/v1/documents/{document}/events", headers={"Last-Event-ID": "yesterday"})
    assert (bad.status_code, bad.json()["code"]) == (400, "bad_request")


def test_a_queued_document_is_cancelled_at_once_and_then_removed(service: Service, client: httpx.Client) -> None:
    document = submit(client)
    cancelled = client.delete(f"/v1/documents/{document}")
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelled")
    result = client.get(f"/v1/documents/{document}/result")
    assert (result.status_code, result.json()["code"]) == (409, "cancelled")
    assert client.delete(f"/v1/documents/{document}").status_code == 204
    assert client.get(f"/v1/documents/{document}").status_code == 404
    assert service.files() == []


def test_removing_leaves_what_another_document_shares(service: Service, client: httpx.Client) -> None:
    first = submit(client)
    do_all(service.store, 1)
    second = submit(client)
    assert client.get(f"/v1/documents/{second}").json()["state"] == "done"
    assert client.delete(f"/v1/documents/{first}").status_code == 204
    assert len(service.files()) == 1
    assert client.delete(f"/v1/documents/{second}").status_code == 204
    assert service.files() == []


def test_a_cancelled_document_can_be_tried_again_and_a_done_one_not(service: Service, client: httpx.Client) -> None:
    document = submit(client)
    client.delete(f"/v1/documents/{document}")
    again = client.post(f"/v1/documents/{document}/retry")
    assert (again.status_code, again.json()["state"]) == (202, "queued")
    do_all(service.store, 1)
    refused = client.post(f"/v1/documents/{document}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_retryable")


def test_lists_are_newest_first_in_pages_and_filtered(service: Service, client: httpx.Client) -> None:
    ids = [submit(client, b"%PDF-1.4" + bytes([n])) for n in range(5)]
    first = client.get("/v1/documents", params={"limit": 2}).json()
    second = client.get("/v1/documents", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [d["id"] for d in first["documents"] + second["documents"]] == ids[::-1]
    assert second["next_cursor"] is None
    client.delete(f"/v1/documents/{ids[0]}")
    cancelled = client.get("/v1/documents", params={"state": "cancelled"}).json()["documents"]
    assert [d["id"] for d in cancelled] == [ids[0]]
    bad = client.get("/v1/documents", params={"state": "lost"})
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid")
    assert client.get("/v1/documents", params={"cursor": "nowhere"}).json()["code"] == "bad_cursor"


def test_a_password_is_never_shown(client: httpx.Client) -> None:
    document = submit(client, password="s3cret")
    assert "s3cret" not in client.get(f"/v1/documents/{document}").text
    client.delete(f"/v1/documents/{document}")
    assert "s3cret" not in json.dumps(list(events(client, document)))


def test_a_failed_document_answers_its_own_error_for_its_result(service: Service, client: httpx.Client) -> None:
    document = submit(client)
    claim = take(service.store, JobKind.PREPARE)
    service.store.job_failed(claim, Problem("encrypted", "The PDF is encrypted."))
    shown = client.get(f"/v1/documents/{document}").json()
    assert (shown["state"], shown["error"]["code"]) == ("failed", "encrypted")
    answer = client.get(f"/v1/documents/{document}/result")
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (
        422,
        "encrypted",
        "The PDF is encrypted.",
    )


@pytest.mark.parametrize(
    "path",
    ["/v1/documents/doc_0", "/v1/documents/doc_0/events", "/v1/documents/doc_0/result", "/v1/batches/batch_0", "/v2"],
)
def test_what_is_not_there_is_a_problem_with_a_code(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["code"], body["status"], body["type"]) == ("not_found", 404, "urn:pagemill:problem:not_found")
