"""A fresh job store for each test, on each kind of database, with a clock that the test turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers.servers import Postgres
from workers.store import JobStore, NewDocument

_numbers = itertools.count()


class Clock:
    """The store's time, as the test sets it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.fresh_database(f"test{next(_numbers)}")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[JobStore]:
    with JobStore.open(url, clock=clock, window_pages=4) as opened:
        yield opened


@pytest.fixture
def new() -> Callable[..., NewDocument]:
    """Makes documents of distinct content."""

    def make(tenant: str = "", **fields: object) -> NewDocument:
        defaults = {"name": "a.pdf", "sha256": f"{next(_numbers):064x}", "size_bytes": 10}
        return NewDocument(tenant=tenant, **{**defaults, **fields})  # type: ignore[arg-type]

    return make
