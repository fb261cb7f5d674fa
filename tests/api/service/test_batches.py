"""Batches: counts that reconcile, folders only below the configured root."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from tests.api.service.running import Service, running
from tests.workers.store.work import do_all

PDF = b"%PDF-1.4"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of documents beside a secret one, with links that lead there."""
    root = tmp_path / "root"
    (root / "march" / "old").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.pdf").write_bytes(PDF)
    for name in ("a.pdf", "B.PDF", "c.png", "notes.txt", ".hidden.pdf"):
        (root / "march" / name).write_bytes(PDF + name.encode())
    (root / "march" / "old" / "d.pdf").write_bytes(PDF + b"d")
    (root / "march" / "link.pdf").symlink_to(tmp_path / "secret" / "s.pdf")
    (root / "link").symlink_to(tmp_path / "secret")
    return root


def names(client: httpx.Client, batch: str) -> list[str]:
    found = client.get("/v1/documents", params={"batch": batch, "limit": 200}).json()["documents"]
    return sorted(document["name"] for document in found)


def test_uploaded_files_make_a_batch_whose_counts_reconcile(service: Service, client: httpx.Client) -> None:
    files = [("files", (f"{n}.pdf", PDF + bytes([n]))) for n in range(3)]
    batch = client.post("/v1/batches", files=files, data={"name": "March", "route": "flash"}).json()
    assert (batch["name"], batch["total"], batch["counts"], batch["finished"]) == ("March", 3, {"queued": 3}, False)
    for _ in range(3):
        do_all(service.store, 1)
    done = client.get(f"/v1/batches/{batch['id']}").json()
    assert (done["total"], done["counts"], done["finished"]) == (3, {"done": 3}, True)
    assert len(client.get(done["documents"]).json()["documents"]) == 3


def test_a_batch_sent_again_with_its_key_is_the_same(client: httpx.Client) -> None:
    def send() -> str:
        files = {"files": ("a.pdf", PDF)}
        return str(client.post("/v1/batches", files=files, headers={"Idempotency-Key": "march"}).json()["id"])

    assert send() == send()


def test_a_folder_below_the_root_is_taken_in(root: Path, tmp_path: Path) -> None:
    with running(tmp_path, batch_root=root) as service, service.client() as client:
        whole = client.post("/v1/batches", json={"directory": "march"})
        assert whole.status_code == 202
        assert names(client, whole.json()["id"]) == ["B.PDF", "a.pdf", "c.png", "d.pdf"]
        flat = client.post("/v1/batches", json={"directory": "march", "recursive": False, "glob": "*.pdf"}).json()
        assert names(client, flat["id"]) == ["a.pdf"]


@pytest.mark.parametrize(
    ("directory", "code"),
    [
        ("..", "forbidden"),
        ("../secret", "forbidden"),
        ("/etc", "forbidden"),
        ("link", "forbidden"),
        ("no", "not_found"),
    ],
)
def test_no_folder_outside_of_the_root_can_be_named(root: Path, tmp_path: Path, directory: str, code: str) -> None:
    with running(tmp_path, batch_root=root) as service, service.client() as client:
        answer = client.post("/v1/batches", json={"directory": directory})
        assert answer.json()["code"] == code
        assert service.files() == []


def test_a_file_that_cannot_be_taken_in_does_not_stop_its_batch(
    root: Path, tmp_path: Path, set_limit: pytest.MonkeyPatch
) -> None:
    set_limit("PAGEMILL_MAX_FILE_MB", "1")  # type: ignore[operator]
    (root / "march" / "large.pdf").write_bytes(PDF + b"." * 2**21)
    with running(tmp_path, batch_root=root) as service, service.client() as client:
        batch = client.post("/v1/batches", json={"directory": "march"}).json()
        assert batch["total"] == 4
        assert [(file["name"], file["error"]["code"]) for file in batch["skipped"]] == [("large.pdf", "too_large")]


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{", "invalid"), (b"{}", "invalid"), (b'{"directory": "march", "colour": 1}', "invalid")],
)
def test_a_body_that_is_no_batch_is_refused(root: Path, tmp_path: Path, body: bytes, code: str) -> None:
    with running(tmp_path, batch_root=root) as service, service.client() as client:
        answer = client.post("/v1/batches", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_folders_are_off_unless_a_root_is_configured(client: httpx.Client) -> None:
    answer = client.post("/v1/batches", json={"directory": os.sep})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_configured")
