"""compose.yaml as the tests need it: services with their variables filled in, in the order in which they start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<operator>:?[-?+])(?P<word>[^}]*))?\}|(?P<bare>\w+))"
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A command that exits 0 when the service is well. Times in seconds."""

    command: tuple[str, ...]
    interval: float
    timeout: float
    retries: int
    start_period: float


@dataclass(frozen=True, slots=True)
class Service:
    """One service, everything that decides how its process runs.

    Attributes:
        depends_on: service name -> condition (`service_started`, `service_healthy`, ...).
        volumes: (named volume or host path, path in the container).
        ports: container ports that others reach it on.
        grace: seconds between the request to stop and the kill.
    """

    name: str
    image: str
    build_target: str | None
    command: tuple[str, ...]
    environment: Mapping[str, str]
    depends_on: Mapping[str, str]
    health: HealthCheck | None
    volumes: tuple[tuple[str, str], ...]
    ports: tuple[int, ...]
    grace: float
    raw: Mapping[str, Any]


def read_services(
    path: Path, variables: Mapping[str, str] | None = None, profile: str | None = None
) -> dict[str, Service]:
    """What `docker compose up` starts with these variables set: the services without a profile, and those of `profile`.

    Raises:
        KeyError: a variable that the file demands (`${NAME:?...}`) is not there.
    """
    document = _filled(yaml.safe_load(path.read_text("utf-8")), variables or {})
    return {
        name: _service(name, raw, variables or {}, path.parent)
        for name, raw in document["services"].items()
        if not raw.get("profiles") or profile in raw["profiles"]
    }


def start_order(services: Mapping[str, Service]) -> Iterator[str]:
    """Service names, each after everything it depends on.

    Raises:
        graphlib.CycleError: services wait for each other.
    """
    return TopologicalSorter({name: set(service.depends_on) for name, service in services.items()}).static_order()


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match, variables), value)
    return value


def _variable(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "$"
    name, operator, word = match["name"] or match["bare"], match["operator"] or "", match["word"] or ""
    value = variables.get(name)
    # With a colon, an empty value counts as none.
    there = value is not None and not (operator.startswith(":") and value == "")
    if operator.endswith("+"):
        return word if there else ""
    if there:
        return str(value)
    if operator.endswith("?"):
        raise KeyError(f"{name}: {word}")
    return word if operator.endswith("-") else ""


def _service(name: str, raw: dict[str, Any], variables: Mapping[str, str], folder: Path) -> Service:
    depends = raw.get("depends_on") or {}
    if isinstance(depends, list):
        depends = {other: {"condition": "service_started"} for other in depends}
    build = raw.get("build")
    return Service(
        name=name,
        image=raw.get("image", ""),
        build_target=build.get("target") if isinstance(build, dict) else None,
        command=_command(raw.get("command") or ()),
        environment={
            **_env_files(raw.get("env_file") or [], folder),
            **dict(_environment(raw.get("environment") or {}, variables)),
        },
        depends_on={other: how.get("condition", "service_started") for other, how in depends.items()},
        health=_health(raw.get("healthcheck")),
        volumes=tuple(_volume(entry) for entry in raw.get("volumes") or ()),
        ports=tuple(sorted({*map(int, raw.get("expose") or ()), *map(_container_port, raw.get("ports") or ())})),
        grace=_seconds(raw.get("stop_grace_period", "10s")),
        raw=raw,
    )


def _env_files(entries: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    for entry in entries:
        path = folder / entry["path"]
        if not path.exists() and not entry.get("required", True):
            continue
        for line in path.read_text("utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                name, _, value = line.partition("=")
                values[name.strip()] = value.strip()
    return values


def _environment(raw: dict[str, Any], variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A name without a value takes the caller's, and is left out where there is none."""
    for name, value in raw.items():
        if value is not None:
            yield name, str(value)
        elif name in variables:
            yield name, variables[name]


def _command(value: Any) -> tuple[str, ...]:
    assert not isinstance(value, str), "write commands as lists: a string would need a shell's rules"
    return tuple(str(part) for part in value)


def _health(raw: dict[str, Any] | None) -> HealthCheck | None:
    if not raw or raw.get("disable"):
        return None
    kind, *command = raw["test"]
    assert kind == "CMD", "health checks run without a shell"
    return HealthCheck(
        command=_command(command),
        interval=_seconds(raw.get("interval", "30s")),
        timeout=_seconds(raw.get("timeout", "30s")),
        retries=int(raw.get("retries", 3)),
        start_period=_seconds(raw.get("start_period", "0s")),
    )


def _volume(entry: Any) -> tuple[str, str]:
    if isinstance(entry, dict):
        return entry.get("source", ""), entry["target"]
    source, target, *_ = entry.split(":")
    return source, target


def _container_port(entry: Any) -> int:
    if isinstance(entry, dict):
        return int(entry["target"])
    return int(str(entry).rsplit(":", 1)[-1].split("/")[0])


def _seconds(duration: str) -> float:
    parts = _DURATION.findall(str(duration))
    assert parts and "".join(number + unit for number, unit in parts) == duration, duration
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
