"""Documents that the tests of workers share, and a service in a fresh folder for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.events import DocumentFinished
from pipeline.parse import page_processes, stream
from tests.documents import text_pdf
from tests.workers.servers import Postgres, Redis
from tests.workers.service import Service


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Makes services in one folder; all are closed at the end."""
    made: list[Service] = []

    def make(**settings: Any) -> Service:
        made.append(Service(tmp_path / "data", **settings))
        return made[-1]

    yield make
    for service in made:
        service.close()


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    return make_service()


@pytest.fixture(scope="session")
def pdfs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Born-digital PDFs by their number of pages."""
    folder = tmp_path_factory.mktemp("pdfs")
    return {pages: text_pdf(folder / f"pages{pages}.pdf", pages) for pages in (1, 2, 3, 9, 40)}


@pytest.fixture(scope="session")
def expected(pdfs: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """The Markdown that the pipeline makes of each of `pdfs` without a service."""
    output = tmp_path_factory.mktemp("expected")
    found: dict[int, bytes] = {}
    with page_processes(1) as processes:
        for pages, path in pdfs.items():
            for event in stream(path, output, processes=processes):
                if isinstance(event, DocumentFinished):
                    found[pages] = event.document.markdown_path.read_bytes()
    return found
