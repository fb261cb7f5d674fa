"""Results, pages and pictures: right bytes, asked for again at no cost, resumed where they broke off."""

from __future__ import annotations

import io
import json
import zipfile

import httpx
import pytest

from tests.api.service.finished import CONTENT_LIST, MARKDOWN, PICTURE, finish
from tests.api.service.running import Service
from tests.workers.store.work import do_window, open_document, take
from workers.store import JobKind


def test_the_result_comes_in_every_format(service: Service, client: httpx.Client) -> None:
    path = f"/v1/documents/{finish(service, client)}/result"
    markdown = client.get(path)
    assert markdown.text == MARKDOWN
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert markdown.headers["content-disposition"] == "inline; filename*=utf-8''R%C3%A9sum%C3%A9%201.md"
    assert client.get(path, params={"format": "content_list"}).json() == CONTENT_LIST
    assert client.get(path, params={"format": "middle"}).json() == {"pdf_info": []}
    whole = client.get(path, params={"format": "json"}).json()
    assert (whole["markdown"], whole["content_list"], whole["manifest"]) == (MARKDOWN, CONTENT_LIST, {"status": "done"})
    assert "MinerU" in whole["notice"]
    unknown = client.get(path, params={"format": "docx"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid")


def test_the_zip_holds_everything_and_is_the_same_each_time(service: Service, client: httpx.Client) -> None:
    document = finish(service, client)
    path = f"/v1/documents/{document}/result"
    first = client.get(path, params={"format": "zip"})
    with zipfile.ZipFile(io.BytesIO(first.content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == [
            "content_list.json",
            "document.md",
            "images/page-0001-1.jpg",
            "manifest.json",
            "middle.json",
        ]
        assert archive.read("document.md").decode() == MARKDOWN
    key = service.store.document(document).job_key
    service.artifacts.delete_prefix(f"jobs/{key}/exports/")
    assert client.get(path, params={"format": "zip"}).content == first.content


@pytest.mark.parametrize("format", ["md", "json", "content_list", "middle", "zip"])
def test_what_the_client_has_is_not_sent_again(service: Service, client: httpx.Client, format: str) -> None:
    path = f"/v1/documents/{finish(service, client)}/result?format={format}"
    first = client.get(path)
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
        again = client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    assert client.get(path, headers={"If-None-Match": '"other"'}).content == first.content


def test_a_download_goes_on_where_it_broke_off(service: Service, client: httpx.Client) -> None:
    path = f"/v1/documents/{finish(service, client)}/result"
    whole = client.get(path)
    part = client.get(path, headers={"Range": "bytes=10-", "If-Range": whole.headers["etag"]})
    assert (part.status_code, part.content) == (206, whole.content[10:])
    assert part.headers["content-range"] == f"bytes 10-{len(whole.content) - 1}/{len(whole.content)}"
    assert client.get(path, headers={"Range": "bytes=-5"}).content == whole.content[-5:]
    changed = client.get(path, headers={"Range": "bytes=10-", "If-Range": '"another"'})
    assert (changed.status_code, changed.content) == (200, whole.content)
    beyond = client.get(path, headers={"Range": "bytes=100000-"})
    assert (beyond.status_code, beyond.json()["code"]) == (416, "range_not_satisfiable")
    assert beyond.headers["content-range"] == f"bytes */{len(whole.content)}"


def test_a_page_is_there_before_its_document_is_finished(service: Service, client: httpx.Client) -> None:
    document = client.post("/v1/documents", files={"files": ("a.pdf", b"%PDF-1.4")}).json()["documents"][0]["id"]
    page = f"/v1/documents/{document}/pages/1"
    early = client.get(page)
    assert (early.status_code, early.json()["code"], early.headers["retry-after"]) == (409, "not_ready", "1")
    key = service.store.document(document).job_key
    open_document(service.store, 2)
    assert client.get(page).json()["code"] == "not_ready"
    stored = {
        "record": {"index": 0, "route": "flash", "why": "told", "seconds": 0.1, "warnings": [], "error": None},
        "page": {"blocks": [], "width_pt": 595.0, "height_pt": 842.0, "rotation": 0},
    }
    service.artifacts.put(f"jobs/{key}/pages/00001.json", json.dumps(stored).encode())
    service.artifacts.put(f"jobs/{key}/pages/00001.md", b"First page")
    do_window(service.store, take(service.store, JobKind.PAGE))
    assert client.get(page).json()["markdown"] == "First page"
    assert client.get(f"/v1/documents/{document}/result").json()["code"] == "not_ready"
    assert client.get(f"/v1/documents/{document}/pages/3").status_code == 404
    assert client.get(f"/v1/documents/{document}/pages/0").status_code == 422


def test_a_page_tells_its_blocks_its_size_and_where_its_pictures_are(service: Service, client: httpx.Client) -> None:
    document = finish(service, client)
    page = client.get(f"/v1/documents/{document}/pages/1").json()
    assert (page["width_pt"], page["height_pt"], page["rotation"], page["route"]) == (595.0, 842.0, 90, "flash")
    assert [block["type"] for block in page["blocks"]] == ["text", "image"]
    picture = client.get(page["blocks"][1]["image"])
    assert (picture.content, picture.headers["content-type"]) == (PICTURE, "image/jpeg")
    assert "sandbox" in picture.headers["content-security-policy"]


@pytest.mark.parametrize("name", ["..%2Fresult%2Fdocument.md", "%2e%2e", "x%00.jpg", "none.jpg", ".hidden"])
def test_a_pictures_name_leads_nowhere_else(service: Service, client: httpx.Client, name: str) -> None:
    assert client.get(f"/v1/documents/{finish(service, client)}/images/{name}").status_code in (404, 422)
