"""API keys, tenants, limits of a tenant, and what a service without keys keeps out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.service.auth import BadKeysFile, hash_key, new_key
from tests.api.service.running import Service, running

PDF = b"%PDF-1.4 somebody's"


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """Keys of two tenants, their file written to `keys.toml`."""
    made = {"ann": new_key(), "bob": new_key()}
    entries = [f'[[keys]]\ntenant = "{name}"\nsha256 = "{hash_key(key).hex()}"\n' for name, key in made.items()]
    limits = "[tenants.ann]\nmax_documents = 2\n[tenants.bob]\nrequests_per_minute = 3\n"
    (tmp_path / "keys.toml").write_text(limits + "\n".join(entries))
    return made


@pytest.fixture
def service(tmp_path: Path, keys: dict[str, str]) -> Iterator[Service]:
    with running(tmp_path, keys_file=tmp_path / "keys.toml") as started:
        yield started


def submit(service: Service, key: str, content: bytes = PDF) -> httpx.Response:
    with service.client(headers={"Authorization": f"Bearer {key}"}) as client:
        return client.post("/v1/documents", files={"files": ("a.pdf", content)})


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer pm_wrong"}, {"X-API-Key": "x"}, {"Authorization": "x"}]
)
def test_without_a_known_key_nothing_is_told_and_nothing_is_read(service: Service, headers: dict[str, str]) -> None:
    with service.client(headers=headers) as client:
        for answer in (
            client.get("/v1/info"),
            client.get("/v1/documents"),
            client.get("/v1/documents/doc_0"),
            client.post("/v1/documents", files={"files": ("a.pdf", PDF)}),
            client.post("/file_parse", files={"files": ("a.pdf", PDF)}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert client.get("/healthz").status_code == 200
    assert service.files() == []


def test_both_ways_to_show_a_key_work(service: Service, keys: dict[str, str]) -> None:
    with service.client() as client:
        assert client.get("/v1/info", headers={"X-API-Key": keys["ann"]}).json()["authentication"] is True
        assert client.get("/v1/info", headers={"Authorization": f"bearer {keys['ann']}"}).status_code == 200


def test_a_document_of_another_tenant_is_not_there_in_any_way(service: Service, keys: dict[str, str]) -> None:
    document = submit(service, keys["ann"]).json()["documents"][0]["id"]
    with service.client(headers={"X-API-Key": keys["ann"]}) as client:
        files = {"files": ("a.pdf", PDF + b"batch")}
        batch = client.post("/v1/batches", files=files).json()["id"]
        assert client.get(f"/v1/batches/{batch}").status_code == 200
    service.context.limiter._buckets.clear()
    for method, path in (
        ("GET", f"/v1/documents/{document}"),
        ("GET", f"/v1/documents/{document}/events"),
        ("GET", f"/v1/documents/{document}/pages/1"),
        ("GET", f"/v1/documents/{document}/pages/1/image"),
        ("GET", f"/v1/documents/{document}/result"),
        ("GET", f"/v1/documents/{document}/images/a.jpg"),
        ("POST", f"/v1/documents/{document}/retry"),
        ("DELETE", f"/v1/documents/{document}"),
        ("GET", f"/v1/batches/{batch}"),
    ):
        service.context.limiter._buckets.clear()
        with service.client(headers={"X-API-Key": keys["bob"]}) as client:
            answer = client.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    service.context.limiter._buckets.clear()
    with service.client(headers={"X-API-Key": keys["bob"]}) as client:
        assert client.get("/v1/documents").json()["documents"] == []
    assert service.store.document(document).state == "queued"


def test_a_tenant_has_its_own_part_of_the_queue(service: Service, keys: dict[str, str]) -> None:
    assert [submit(service, keys["ann"], PDF + bytes([n])).status_code for n in range(2)] == [202, 202]
    refused = submit(service, keys["ann"], PDF + b"third")
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert submit(service, keys["bob"]).status_code == 202


def test_a_tenant_over_its_rate_is_told_when_to_come_back(service: Service, keys: dict[str, str]) -> None:
    with service.client(headers={"X-API-Key": keys["bob"]}) as client:
        answers = [client.get("/v1/info") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["code"] == "rate_limited"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
    with service.client(headers={"X-API-Key": keys["ann"]}) as client:
        assert client.get("/v1/info").status_code == 200


def test_keys_may_stand_in_a_json_file(tmp_path: Path) -> None:
    key = new_key()
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"tenant": "ann", "sha256": hash_key(key).hex()}]}))
    with running(tmp_path, keys_file=path) as service:
        document = submit(service, key).json()["documents"][0]["id"]
        assert service.store.document(document).tenant == "ann"


@pytest.mark.parametrize(
    "content", ["keys = 3", "[[keys]]\nsha256 = 'zz'", "[[keys]]\nsha256 = 'abcd'", "[[keys]]", "]"]
)
def test_a_keys_file_that_is_none_stops_the_service(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.toml").write_text(content)
    with pytest.raises(BadKeysFile, match=r"keys\.toml"), running(tmp_path, keys_file=tmp_path / "keys.toml"):
        pass


def test_an_address_that_others_reach_needs_keys(tmp_path: Path) -> None:
    with pytest.raises(BadKeysFile, match="--no-auth"), running(tmp_path, host="0.0.0.0"):
        pass
    with running(tmp_path, host="0.0.0.0", no_auth=True) as service, service.client() as client:
        assert client.get("/v1/info").json()["authentication"] is False


def test_without_keys_other_sites_and_other_names_are_kept_out(tmp_path: Path) -> None:
    with running(tmp_path, allowed_hosts="mill.example") as service, service.client() as client:
        own = f"127.0.0.1:{service.port}"
        assert client.get("/v1/info", headers={"Host": "localhost:1"}).status_code == 200
        assert client.get("/v1/info", headers={"Host": "mill.example"}).status_code == 200
        rebound = client.get("/v1/info", headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["code"]) == (421, "unknown_host")
        files = {"files": ("a.pdf", PDF)}
        posted = client.post("/v1/documents", files=files, headers={"Origin": "https://evil.example"})
        assert (posted.status_code, posted.json()["code"]) == (403, "cross_site")
        assert service.files() == []
        assert client.post("/v1/documents", files=files, headers={"Origin": f"http://{own}"}).status_code == 202
