"""The OpenAPI description: true, complete enough for generated clients, and nothing it allows ends in a 5xx."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from tests.api.service.finished import finish
from tests.api.service.running import Service, running

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 25
"""Generated requests for each operation: enough to reach every kind of bad value, few enough for a minute."""


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    (folder / "root").mkdir()
    with running(folder, max_wait_seconds=0.05, file_parse_seconds=0.05, batch_root=folder / "root") as service:
        with service.client() as client:
            finish(service, client)
        yield service


def test_nothing_that_the_description_allows_fails_the_service(fuzzed: Service) -> None:
    described = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    with fuzzed.client() as client:
        document = client.get("/v1/documents").json()["documents"][-1]["id"]
    failures: list[str] = []
    for result in described.get_all_operations():
        operation = result.ok()
        if operation.path != "/readyz":  # answers 503 by design: there is no worker here
            failures += _fuzz(operation, document)
    assert not failures, "\n".join(failures)


def _fuzz(operation: Any, document: str) -> list[str]:
    """Call an operation with generated cases, every second time for a real document; what it did wrong, if anything."""
    turns = itertools.cycle([True, False])

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def call(case: Any) -> None:
        if "document_id" in (case.path_parameters or {}) and operation.method != "delete" and next(turns):
            case.path_parameters["document_id"] = document
        case.call_and_validate(
            checks=[
                schemathesis.checks.not_a_server_error,
                schemathesis.checks.response_schema_conformance,
            ],
            timeout=30,
        )

    try:
        call()
    except (AssertionError, schemathesis.errors.SchemathesisError, BaseExceptionGroup) as error:
        return [f"{operation.method.upper()} {operation.path}: {error}"]
    return []


def test_operations_are_named_and_described(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    operations = [operation for path in described["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    assert all(operation["summary"] and operation["responses"] for operation in operations)
    assert "Problem" in described["components"]["schemas"]
    assert "MinerU" in described["info"]["description"]


def test_a_document_that_is_there_is_as_described(fuzzed: Service) -> None:
    with fuzzed.client() as client:
        described = client.get("/openapi.json").json()["components"]["schemas"]["DocumentStatus"]
        shown = client.get("/v1/documents").json()["documents"][0]
        shown = client.get(f"/v1/documents/{shown['id']}").json()
    assert set(shown) == set(described["properties"])
    assert set(described["required"]) <= set(shown)
    assert set(described["example"]) <= set(described["properties"])
