"""compose.yaml and the Dockerfile keep what the documentation promises, and fit their specification."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic_settings import BaseSettings

from tests.stack.compose_file import Service, read_services, start_order

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose.yaml"
OURS = ("api", "worker")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text("utf-8"))


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    return read_services(COMPOSE)


def setting_names() -> set[str]:
    path = ROOT / "scripts" / "settings-tables.py"
    spec = importlib.util.spec_from_file_location("settings_tables", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds: dict[str, type[BaseSettings]] = module.classes()
    return {f"PAGEMILL_{name}".upper() for kind in kinds.values() for name in kind.model_fields}


def test_it_fits_the_compose_specification(document: dict[str, Any]) -> None:
    schema = json.loads(
        files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text("utf-8")
    )
    errors = [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in jsonschema.validators.validator_for(schema)(schema).iter_errors(document)
    ]
    assert errors == []


def test_services_start_after_what_they_need_and_only_when_that_is_healthy(services: dict[str, Service]) -> None:
    order = list(start_order(services))
    assert order.index("redis") < order.index("api") < order.index("worker")
    assert order.index("postgres") < order.index("api")
    for service in services.values():
        for other, condition in service.depends_on.items():
            assert condition == "service_healthy", f"{service.name} -> {other}"
            assert services[other].health is not None


def test_every_service_can_be_watched(services: dict[str, Service]) -> None:
    assert [name for name, service in services.items() if service.health is None] == []


@pytest.mark.parametrize("name", ["redis", "postgres", *OURS])
def test_every_service_runs_without_rights(services: dict[str, Service], name: str) -> None:
    raw = services[name].raw
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in raw["security_opt"]
    assert not raw.get("privileged")
    user = raw.get("user") or users_of_targets()[services[name].build_target or ""]
    assert int(user.split(":")[0]) > 0


def test_workers_can_be_scaled(services: dict[str, Service]) -> None:
    raw = services["worker"].raw
    assert "container_name" not in raw
    assert "ports" not in raw
    assert "hostname" not in raw


def test_nothing_is_open_to_other_machines_until_someone_says_so(services: dict[str, Service]) -> None:
    published = [str(port) for service in services.values() for port in service.raw.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_workers_have_more_time_to_stop_than_they_take_to_drain(services: dict[str, Service]) -> None:
    from workers.settings import ServiceSettings

    assert services["worker"].grace > ServiceSettings.model_fields["drain_seconds"].default + 5


def test_api_and_workers_share_stores_broker_and_volume(services: dict[str, Service]) -> None:
    api, worker = (services[name] for name in OURS)
    for name in ("PAGEMILL_DATABASE_URL", "PAGEMILL_REDIS_URL", "PAGEMILL_DATA_DIR"):
        assert api.environment[name] == worker.environment[name]
    assert api.volumes == worker.volumes
    assert all(worker.environment["PAGEMILL_DATA_DIR"].startswith(target) for _, target in worker.volumes)


def test_every_pagemill_variable_is_a_setting(services: dict[str, Service]) -> None:
    known = setting_names()
    used = {key for name in OURS for key in services[name].environment if key.startswith("PAGEMILL_")}
    assert used <= known
    example = (ROOT / ".env.example").read_text("utf-8")
    own = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text("utf-8")))
    assert set(re.findall(r"^#?(PAGEMILL_\w+)=", example, re.MULTILINE)) <= known | own


def test_every_volume_is_declared(document: dict[str, Any], services: dict[str, Service]) -> None:
    used = {source for service in services.values() for source, _ in service.volumes}
    assert used == set(document["volumes"])


def test_variables_are_filled_in_as_compose_does(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(
        "services: {a: {image: x, command: ['${A:-d}', '${A-d}', '${B:-d}', '$$B', '${C:+yes}'],"
        " environment: {GIVEN: , NOT_GIVEN: }}}"
    )
    service = read_services(path, {"A": "", "B": "b", "C": "c", "GIVEN": "1"})["a"]
    assert service.command == ("d", "", "b", "$B", "yes")
    assert service.environment == {"GIVEN": "1"}


def test_a_demanded_variable_is_demanded(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("services: {a: {image: '${TAG:?say which}'}}")
    with pytest.raises(KeyError, match="say which"):
        read_services(path)


def test_build_targets_exist_and_what_they_copy_is_there(services: dict[str, Service]) -> None:
    targets = users_of_targets()
    assert {service.build_target for service in services.values() if service.build_target} <= set(targets)
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source == "." or any(entry in (f"!{source}", f"!{source.split('/')[0]}/") for entry in ignored), (
                source
            )


def test_the_packages_of_the_distribution_get_into_the_images() -> None:
    include = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]["find"][
        "include"
    ]
    allowed = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {f"!{pattern.rstrip('*')}/" for pattern in include} <= set(allowed)


def users_of_targets() -> dict[str, str]:
    """The user that each stage of the Dockerfile ends with, inherited as Docker does."""
    users: dict[str, str] = {}
    stage = ""
    for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines():
        if match := re.match(r"FROM (\S+) AS (\S+)", line):
            stage = match[2]
            users[stage] = users.get(match[1], "0")
        elif match := re.match(r"USER (\S+)", line):
            users[stage] = match[1]
    return users


@pytest.mark.parametrize("profile", ["cpu", "cuda", "ascend"])
def test_an_engine_is_a_router_and_instances_of_both_roles(profile: str) -> None:
    services = read_services(COMPOSE, profile=profile)
    ours = {name: service for name, service in services.items() if service.build_target == "engine"}
    router = ours.pop("router")
    assert router.health is not None and not router.raw.get("ports")
    assert sorted(service.environment["PAGEMILL_ROLE"] for service in ours.values()) == ["decode", "prefill"]
    for service in ours.values():
        assert service.environment["PAGEMILL_VENDOR"] == profile
        assert service.depends_on == {"router": "service_healthy"}
        assert service.health is not None and "instance" in service.health.command
        assert service.raw["read_only"] is True and service.raw["cap_drop"] == ["ALL"]
        assert service.volumes == (("./model", "/model"),)
        assert not service.raw.get("ports") and "container_name" not in service.raw
        assert service.environment["PAGEMILL_ENGINE_TOKEN"] == router.environment["PAGEMILL_ENGINE_TOKEN"]


def test_without_a_profile_there_is_no_engine(services: dict[str, Service]) -> None:
    assert set(services) == {"redis", "postgres", "api", "worker"}


def test_the_commands_of_the_engine_have_the_options_that_the_file_gives_them() -> None:
    from typer.main import get_command

    from api.cli.main import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    services = read_services(COMPOSE, {"PAGEMILL_ENGINE_TOKEN": "x" * 32}, profile="cpu")
    known = {
        "router": {name for parameter in commands["router"].params for name in parameter.opts},
        "prefill": {name for parameter in commands["engine"].commands["serve"].params for name in parameter.opts},
    }
    for name, options in known.items():
        used = set(re.findall(r"--[a-z][a-z-]+", " ".join(services[name].command)))
        assert used and used <= options
