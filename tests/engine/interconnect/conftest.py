"""Fixtures for the suite that every transport passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.interconnect.layout import KVLayout
from engine.interconnect.transports.catalogue import availabilities
from tests.engine.interconnect.harness import LAYOUT, SOCKETS, Engine

AVAILABLE = [name for name, available in availabilities().items() if available.ok]


@pytest.fixture(params=AVAILABLE)
def kind(request: pytest.FixtureRequest) -> str:
    """Every transport that is available here; those of others only where their library and device are."""
    name: str = request.param
    return name


@pytest.fixture(params=SOCKETS)
def socket_kind(request: pytest.FixtureRequest) -> str:
    """Those that somebody can stand in the way of."""
    name: str = request.param
    return name


@pytest.fixture
def engines() -> Iterator[Callable[..., Engine]]:
    """Makes engines and closes them."""
    made: list[Engine] = []

    def make(kind: str, engine_id: str, layout: KVLayout = LAYOUT, **options: Any) -> Engine:
        engine = Engine(kind, engine_id, layout, seed=len(made), **options)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
