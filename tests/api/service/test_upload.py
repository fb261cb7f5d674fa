"""What may be uploaded, what is refused, and that nothing half done is left."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from tests.api.service.running import Service, running
from tests.workers.servers import wait_for

PDF = b"%PDF-1.4 as small as it gets"


def upload(client: httpx.Client, *files: tuple[str, bytes], **options: str) -> httpx.Response:
    return client.post("/v1/documents", files=[("files", file) for file in files], data=options)


def test_an_upload_is_accepted_and_its_bytes_are_kept_by_their_hash(service: Service, client: httpx.Client) -> None:
    answer = upload(client, ("a.pdf", PDF))
    assert answer.status_code == 202
    (document,) = answer.json()["documents"]
    assert (document["name"], document["state"], document["size_bytes"]) == ("a.pdf", "queued", len(PDF))
    assert answer.headers["location"] == f"/v1/documents/{document['id']}"
    assert service.files() == [f"inputs/{document['sha256']}"]
    with service.artifacts.open(f"inputs/{document['sha256']}") as kept:
        assert kept.read() == PDF


def test_many_files_become_documents_in_their_order(client: httpx.Client) -> None:
    answer = upload(client, *((f"{n}.pdf", PDF + bytes([n])) for n in range(5)))
    assert [document["name"] for document in answer.json()["documents"]] == [f"{n}.pdf" for n in range(5)]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("..", "document"),
        (".hidden.pdf", "hidden.pdf"),
        ("scan 📄 día.pdf", "scan 📄 día.pdf"),
        ("报告.pdf", "报告.pdf"),
        ("C:\\Users\\me\\a.pdf", "a.pdf"),
    ],
)
def test_names_lose_what_is_dangerous_and_keep_the_rest(client: httpx.Client, sent: str, kept: str) -> None:
    (document,) = upload(client, (sent, PDF)).json()["documents"]
    assert document["name"] == kept


def test_a_name_with_nul_and_one_of_three_hundred_characters_are_made_fit(client: httpx.Client) -> None:
    boundary = "b"
    name = "\0" + "長" * 300 + ".pdf"
    body = (
        f'--b\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
        + PDF
        + b"\r\n--b--\r\n"
    )
    answer = client.post(
        "/v1/documents", content=body, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"}
    )
    (document,) = answer.json()["documents"]
    assert "\0" not in document["name"]
    assert document["name"].endswith("長.pdf")
    assert len(document["name"].encode()) <= 240


def test_a_name_in_the_extended_notation_is_read(client: httpx.Client) -> None:
    body = (
        b"--b\r\nContent-Disposition: form-data; name=\"files\"; filename*=utf-8''r%C3%A9sum%C3%A9.pdf\r\n\r\n"
        + PDF
        + b"\r\n--b--\r\n"
    )
    answer = client.post("/v1/documents", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert answer.json()["documents"][0]["name"] == "résumé.pdf"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"colour": "blue"}, "unsupported_option"),
        ({"route": "guess"}, "unsupported_option"),
        ({"quality": "best"}, "unsupported_option"),
        ({"force": "perhaps"}, "unsupported_option"),
        ({"priority": "1e3"}, "unsupported_option"),
        ({"priority": "101"}, "unsupported_option"),
        ({"wait": "nan"}, "unsupported_option"),
        ({"pages": "5-2"}, "bad_page_range"),
        ({"pages": "one"}, "bad_page_range"),
        ({"webhook": "http://127.0.0.1/"}, "webhook_refused"),
    ],
)
def test_options_that_are_none_are_named_and_nothing_is_kept(
    service: Service, client: httpx.Client, options: dict[str, str], code: str
) -> None:
    answer = upload(client, ("a.pdf", PDF), **options)
    assert 400 <= answer.status_code < 500
    assert answer.json()["code"] == code
    assert next(iter(options)) in answer.json()["detail"] or code != "unsupported_option"
    assert service.files() == []
    assert client.get("/v1/documents").json()["documents"] == []


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        ("application/pdf", PDF, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", b"files=a", "unsupported_media_type"),
        ("multipart/form-data", PDF, "malformed_upload"),
        ("multipart/form-data; boundary=b", PDF, "malformed_upload"),
        ("multipart/form-data; boundary=b", b"--b--\r\n", "no_files"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="files"; filename=""\r\n\r\n\r\n--b--\r\n',
            "no_files",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="files"\r\n\r\ntext\r\n--b--\r\n',
            "malformed_upload",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.pdf"\r\n\r\nno end',
            "malformed_upload",
        ),
    ],
)
def test_what_is_no_form_with_files_is_refused(
    service: Service, client: httpx.Client, content_type: str, body: bytes, code: str
) -> None:
    answer = client.post("/v1/documents", content=body, headers={"Content-Type": content_type})
    assert 400 <= answer.status_code < 500
    assert answer.json()["code"] == code
    assert answer.headers["content-type"] == "application/problem+json"
    assert service.files() == []


def test_a_file_over_the_limit_is_stopped_while_it_streams(tmp_path: Path, set_limit: pytest.MonkeyPatch) -> None:
    set_limit("PAGEMILL_MAX_FILE_MB", "1")  # type: ignore[operator]
    with running(tmp_path) as service, service.client() as client:
        answer = upload(client, ("small.pdf", PDF), ("large.pdf", PDF + b"." * (3 * 2**20)))
        assert answer.status_code == 413
        assert answer.json()["code"] == "too_large"
        assert service.files() == []
        assert upload(client, ("small.pdf", PDF)).status_code == 202


def test_too_many_files_are_refused_as_a_whole(tmp_path: Path) -> None:
    with running(tmp_path, max_files_per_request=2) as service, service.client() as client:
        answer = upload(client, *((f"{n}.pdf", PDF) for n in range(3)))
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
        assert service.files() == []


def test_a_client_that_goes_away_leaves_no_file(service: Service, client: httpx.Client) -> None:
    head = (
        b"POST /v1/documents HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        b"Content-Length: 10000000\r\n\r\n"
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.pdf"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(head + b"." * 300_000)
        wait_for(lambda: bool(service.files()), "the upload is under way")
    wait_for(lambda: service.files() == [], "what was uploaded is gone")
    assert client.get("/v1/documents").json()["documents"] == []


def test_an_upload_that_stops_sending_is_given_up(tmp_path: Path) -> None:
    with running(tmp_path, upload_idle_seconds=0.2) as service:
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
            connection.sendall(
                b"POST /v1/documents HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
                b'Content-Length: 1000\r\n\r\n--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 408")
        assert service.files() == []


def test_the_same_idempotency_key_answers_the_same_documents(client: httpx.Client) -> None:
    def send(content: bytes) -> httpx.Response:
        files = [("files", ("a.pdf", content)), ("files", ("b.pdf", content + b"b"))]
        return client.post("/v1/documents", files=files, headers={"Idempotency-Key": "once"})

    first, again, other = send(PDF), send(PDF), send(PDF + b"!")
    ids = [document["id"] for document in first.json()["documents"]]
    assert len(set(ids)) == 2
    assert [document["id"] for document in again.json()["documents"]] == ids
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


def test_a_full_queue_says_when_to_come_back(service: Service, client: httpx.Client) -> None:
    service.context.settings.max_queued_documents = 1
    assert upload(client, ("a.pdf", PDF)).status_code == 202
    answer = upload(client, ("b.pdf", PDF + b"b"))
    assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")
    assert int(answer.headers["retry-after"]) >= 1


def test_waiting_ends_with_its_time_when_nobody_works(client: httpx.Client) -> None:
    answer = upload(client, ("a.pdf", PDF), wait="0.2")
    assert answer.status_code == 202
    assert answer.json()["documents"][0]["state"] == "queued"
