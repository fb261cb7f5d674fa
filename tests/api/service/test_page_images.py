"""Pictures of pages: drawn apart from the service, upright as the blocks are, kept for the next time."""

from __future__ import annotations

import io
import json
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.api.service.running import Service
from tests.conftest import page_process_pids
from tests.documents import text_pdf


def submit(client: httpx.Client, content: bytes) -> str:
    answer = client.post("/v1/documents", files={"files": ("a.pdf", content)})
    return str(answer.json()["documents"][0]["id"])


@pytest.fixture
def document(tmp_path: Path, client: httpx.Client) -> str:
    return submit(client, text_pdf(tmp_path / "a.pdf", 2).read_bytes())


def test_a_page_can_be_seen_before_it_is_parsed(client: httpx.Client, document: str) -> None:
    path = f"/v1/documents/{document}/pages/2/image?width=300"
    answer = client.get(path)
    assert answer.headers["content-type"] == "image/jpeg"
    picture = Image.open(io.BytesIO(answer.content))
    assert abs(picture.width - 300) <= 1
    assert picture.height == pytest.approx(300 * 842 / 595, abs=2)
    assert picture.convert("L").getextrema()[0] < 100, "there is ink on it"
    again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


def test_png_is_there_too_and_sizes_are_bounded(service: Service, client: httpx.Client, document: str) -> None:
    path = f"/v1/documents/{document}/pages/1/image"
    assert client.get(path, params={"format": "png", "width": 50}).content.startswith(b"\x89PNG")
    assert client.get(path, params={"width": 100_000}).status_code == 422
    large = Image.open(io.BytesIO(client.get(path, params={"width": 4000}).content))
    assert large.width * large.height <= service.context.api.page_image_megapixels * 1_001_000


def test_a_page_that_was_turned_is_shown_as_it_was_read(service: Service, client: httpx.Client, document: str) -> None:
    key = service.store.document(document).job_key
    page = {"record": {}, "page": {"blocks": [], "width_pt": 842, "height_pt": 595, "rotation": 90}}
    service.artifacts.put(f"jobs/{key}/pages/00001.json", json.dumps(page).encode())
    answer = client.get(f"/v1/documents/{document}/pages/1/image", params={"width": 300})
    picture = Image.open(io.BytesIO(answer.content))
    assert picture.width > picture.height


@pytest.mark.parametrize(("content", "code"), [(b"%PDF-1.4 no more", "damaged"), (b"no pdf at all", "damaged")])
def test_a_file_that_cannot_be_drawn_is_a_refusal(client: httpx.Client, content: bytes, code: str) -> None:
    answer = client.get(f"/v1/documents/{submit(client, content)}/pages/1/image")
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_a_page_beyond_the_end_is_none(client: httpx.Client, document: str) -> None:
    answer = client.get(f"/v1/documents/{document}/pages/3/image")
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_page_range")


def test_an_encrypted_document_is_drawn_only_with_its_password(tmp_path: Path, client: httpx.Client) -> None:
    content = text_pdf(tmp_path / "locked.pdf", password="key").read_bytes()
    answer = client.get(f"/v1/documents/{submit(client, content)}/pages/1/image")
    assert (answer.status_code, answer.json()["code"]) == (422, "encrypted")


def test_drawing_leaves_no_process_behind(tmp_path: Path) -> None:
    from tests.api.service.running import running

    before = set(page_process_pids())
    with running(tmp_path) as service, service.client() as client:
        document = submit(client, text_pdf(tmp_path / "a.pdf").read_bytes())
        assert client.get(f"/v1/documents/{document}/pages/1/image").status_code == 200
        assert set(page_process_pids()) - before
    assert set(page_process_pids()) - before == set()
