"""docs/operations.md lists every setting and every error code, and the dashboard asks for metrics that exist."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic_settings import BaseSettings

import api
import pipeline
import workers
from api.service.problems import STATUS
from pipeline.errors import PipelineError
from tests.api.service.running import running
from workers.store.types import StoreError

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs" / "operations.md"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings_tables", ROOT / "scripts" / "settings-tables.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def everything_imported() -> None:
    for package in (api, pipeline, workers):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "migrations.versions" not in found.name and not found.name.endswith(".env"):
                importlib.import_module(found.name)


def subclasses(kind: type) -> set[type]:
    direct = set(kind.__subclasses__())
    return direct | {below for each in direct for below in subclasses(each)}


def ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] in ("api", "pipeline", "workers")


def test_the_tables_of_settings_are_those_of_the_classes(tables: ModuleType) -> None:
    text = OPERATIONS.read_text("utf-8")
    assert text == tables.with_tables(text), "run: python scripts/settings-tables.py"


def test_every_class_of_settings_has_a_table(tables: ModuleType) -> None:
    known = set(tables.classes().values())
    assert {kind for kind in subclasses(BaseSettings) if ours(kind)} == known
    text = OPERATIONS.read_text("utf-8")
    assert set(re.findall(r"<!-- settings: (\w+) -->", text)) == set(tables.classes())


def test_every_setting_says_what_it_does(tables: ModuleType) -> None:
    for kind in tables.classes().values():
        for name, field in kind.model_fields.items():
            assert field.description, f"{kind.__name__}.{name}"


def test_every_error_code_has_its_status_and_its_cure() -> None:
    section = OPERATIONS.read_text("utf-8").split("## Error codes", 1)[1]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    assert {code: int(status) for code, status, _, _ in rows} == STATUS
    assert len(rows) == len(STATUS), "a code stands twice"
    assert all(cure.strip() for *_, cure in rows)


def test_every_error_that_can_reach_a_client_is_in_the_table() -> None:
    inner = {"lease_lost"}  # between a worker and the store only
    kinds = {kind for base in (PipelineError, StoreError) for kind in {base, *subclasses(base)} if ours(kind)}
    of_ingest = {kind.code for kind in kinds if kind.__module__.startswith("workers.ingest")}
    assert {kind.code for kind in kinds} - inner - of_ingest <= set(STATUS)
    section = OPERATIONS.read_text("utf-8").split("### Of `pagemill ingest`", 1)[1]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == of_ingest


def test_links_lead_somewhere() -> None:
    for document in ("operations.md", "api.md"):
        text = (ROOT / "docs" / document).read_text("utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (ROOT / "docs" / target).exists(), f"{document}: {target}"


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_exist(tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "dashboards" / "pagemill.json").read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if isinstance(each["query"], dict)]
    queries.append(OPERATIONS.read_text("utf-8"))
    assert len(queries) > 10
    with running(tmp_path) as service:
        httpx.get(f"{service.url}/v1/info")
        told = httpx.get(f"{service.url}/metrics").raise_for_status().text
    families = list(text_string_to_metric_families(told))
    names = {sample.name for family in families for sample in family.samples} | {
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    }
    asked = {name for query in queries for name in re.findall(r"\bpagemill_\w+", query)} - {"pagemill_data"}
    assert asked <= names
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
