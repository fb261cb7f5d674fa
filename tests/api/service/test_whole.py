"""The whole way with real workers: upload, watch, read, take the result. Embedded, as `pagemill serve` runs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.service.running import Service, running
from tests.documents import pdf_with_a_broken_page, text_pdf
from workers.runtime import EmbeddedRuntime
from workers.settings import ServiceSettings


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with workers in this process; its documents are this module's."""
    folder = tmp_path_factory.mktemp("whole")
    settings = ServiceSettings(data_dir=folder)
    with (
        running(folder, settings) as started,
        EmbeddedRuntime(settings, 1, store=started.store, artifacts=started.artifacts),
    ):
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        opened.timeout = httpx.Timeout(180)
        yield opened


def parse(client: httpx.Client, path: Path, **options: str) -> dict[str, object]:
    files = {"files": (path.name, path.read_bytes())}
    answer = client.post("/v1/documents", files=files, data={"wait": "150", **options})
    assert answer.status_code == 200, answer.text
    document: dict[str, object] = answer.json()["documents"][0]
    return document


def test_a_document_goes_all_the_way(client: httpx.Client, tmp_path: Path) -> None:
    assert client.get("/readyz").json()["ready"] is True
    document = parse(client, text_pdf(tmp_path / "report.pdf", 3))
    assert (document["state"], document["pages_done"], document["pages_total"]) == ("done", 3, 3)
    path = f"/v1/documents/{document['id']}"
    page = client.get(f"{path}/pages/2").json()
    assert "Chapter 2" in page["markdown"] and "Chapter 1" not in page["markdown"]
    assert any("Chapter 2" in str(block.get("content")) for block in page["blocks"])
    assert all(0 <= edge <= 1 for block in page["blocks"] for edge in block["bbox"])
    markdown = client.get(f"{path}/result").text
    assert all(f"Chapter {number}" in markdown for number in (1, 2, 3))
    with zipfile.ZipFile(io.BytesIO(client.get(f"{path}/result", params={"format": "zip"}).content)) as archive:
        assert archive.read("document.md").decode() == markdown
    events = client.get(f"{path}/events").text
    assert events.count("event: page\n") == 3 and "event: done" in events
    assert client.get(f"{path}/pages/1/image").headers["content-type"] == "image/jpeg"
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_only_the_pages_asked_for_are_parsed(client: httpx.Client, tmp_path: Path) -> None:
    document = parse(client, text_pdf(tmp_path / "part.pdf", 4), pages="2-3", route="flash")
    assert [page["page"] for page in document["pages"]] == [2, 3]  # type: ignore[attr-defined]
    assert client.get(f"/v1/documents/{document['id']}/pages/4").status_code == 404


def test_a_password_opens_an_encrypted_document(client: httpx.Client, tmp_path: Path) -> None:
    locked = text_pdf(tmp_path / "locked.pdf", password="sesame")
    refused = parse(client, locked)
    assert (refused["state"], refused["error"]["code"]) == ("failed", "encrypted")  # type: ignore[index]
    assert parse(client, locked, password="sesame")["state"] == "done"


def test_a_broken_page_leaves_a_partial_document(client: httpx.Client, tmp_path: Path) -> None:
    document = parse(client, pdf_with_a_broken_page(tmp_path / "broken.pdf"))
    assert (document["state"], document["pages_failed"]) == ("partial", 1)
    path = f"/v1/documents/{document['id']}"
    assert (client.get(f"{path}/pages/2").status_code, client.get(f"{path}/pages/2").json()["code"]) == (422, "damaged")
    assert "sound page" in client.get(f"{path}/result").text


def test_what_is_no_document_fails_with_the_code_of_its_fault(client: httpx.Client, tmp_path: Path) -> None:
    for name, content, code in (("empty.pdf", b"", "empty_file"), ("text.pdf", b"only text", "not_a_pdf")):
        (tmp_path / name).write_bytes(content)
        document = parse(client, tmp_path / name)
        assert (document["state"], document["error"]["code"]) == ("failed", code)  # type: ignore[index]


def test_clients_of_minerus_api_are_served(client: httpx.Client, tmp_path: Path) -> None:
    good, bad = text_pdf(tmp_path / "report.pdf", 2), tmp_path / "bad.pdf"
    bad.write_bytes(b"nothing")
    files = [("files", (path.name, path.read_bytes())) for path in (good, good, bad)]
    form = {"backend": "pipeline", "parse_method": "auto", "return_content_list": "true", "lang_list": "en"}
    answer = client.post("/file_parse", files=files, data=form)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert set(results) == {"report", "report_2", "bad"}
    assert "Chapter 2" in results["report"]["md_content"]
    assert "Chapter 2" in results["report"]["content_list"]
    assert results["bad"]["error"].startswith("not_a_pdf")
    zipped = client.post(
        "/file_parse", files=files[:1], data={"response_format_zip": "true", "end_page_id": "0", "return_md": "true"}
    )
    with zipfile.ZipFile(io.BytesIO(zipped.content)) as archive:
        text = archive.read("report/report.md").decode()
    assert "Chapter 1" in text and "Chapter 2" not in text
