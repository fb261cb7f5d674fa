"""Every code has a status, and no answer is without a code."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import pipeline
import workers
from api.service.problems import STATUS
from pipeline.errors import PipelineError
from workers.store.types import StoreError


def _codes(kind: type[PipelineError] | type[StoreError]) -> Iterator[str]:
    if not kind.__module__.startswith("workers.ingest"):  # the command line's own, on the client's side
        yield kind.code
    for child in kind.__subclasses__():
        yield from _codes(child)


@pytest.mark.parametrize("base", [PipelineError, StoreError])
def test_every_error_of_the_lower_floors_has_a_status(base: type[PipelineError] | type[StoreError]) -> None:
    for package in (pipeline, workers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "migrations" not in module.name:
                importlib.import_module(module.name)
    assert set(_codes(base)) - {"lease_lost"} - set(STATUS) == set()


def test_statuses_are_refusals() -> None:
    assert all(400 <= status < 600 for status in STATUS.values())
