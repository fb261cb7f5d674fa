"""The route vlm over REST: there where an engine is configured, refused with a code where none is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pipeline.settings import settings
from tests.api.service.running import Service, running
from tests.documents import drawn_pdf, text_pdf
from tests.pipeline.routes.scripted_vlm import MODEL, ScriptedVlm
from tests.pipeline.routes.vlm_pages import REPORT, report


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ScriptedVlm]:
    with ScriptedVlm(drawn_pdf(tmp_path / "report.pdf", [report]), [REPORT]) as script:
        yield script


@pytest.fixture
def with_engine(
    tmp_path: Path, engine: ScriptedVlm, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Service, httpx.Client]]:
    monkeypatch.setenv("PAGEMILL_ENGINE_URL", engine.url)
    settings.cache_clear()
    with running(tmp_path / "service") as service, service.client() as client:
        yield service, client
    monkeypatch.undo()
    settings.cache_clear()


def upload(client: httpx.Client, path: Path, **fields: str) -> httpx.Response:
    return client.post("/v1/documents", files={"files": path.open("rb")}, data=fields)


def test_without_an_engine_the_route_is_refused_with_its_code(client: httpx.Client, tmp_path: Path) -> None:
    refused = upload(client, text_pdf(tmp_path / "a.pdf"), route="vlm")
    assert (refused.status_code, refused.json()["code"]) == (501, "route_unavailable")
    assert "PAGEMILL_ENGINE_URL" in refused.json()["detail"]
    told = client.get("/v1/info").json()
    assert "vlm" not in told["routes"] and told["engine"] is None
    assert "engine" not in client.get("/readyz").json()["checks"]


def test_with_an_engine_the_route_is_taken_and_the_model_is_part_of_the_job(
    with_engine: tuple[Service, httpx.Client], tmp_path: Path
) -> None:
    service, client = with_engine
    path = text_pdf(tmp_path / "a.pdf")
    (document,) = upload(client, path, route="vlm").json()["documents"]
    assert document["options"]["route"] == "vlm"
    claim = service.store.claim(["prepare"], "w", 30)  # type: ignore[list-item]
    assert claim is not None and claim.job["engine"] == {"model": MODEL}
    told = client.get("/v1/info").json()
    assert "vlm" in told["routes"] and told["engine"] == {"model": MODEL}


def test_readiness_is_that_of_the_canary(with_engine: tuple[Service, httpx.Client], engine: ScriptedVlm) -> None:
    _, client = with_engine
    check = client.get("/readyz").json()["checks"]["engine"]
    assert check == {"ok": True, "detail": "2 of 2 instances usable, last canary 1 s ago"}
    engine.healthy = False
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["engine"]["ok"] is False
    engine.close()
    assert "does not answer" in client.get("/readyz").json()["checks"]["engine"]["detail"]
    # A document is accepted all the same; how it is read is found out when its turn comes.
    assert client.get("/healthz").status_code == 200
