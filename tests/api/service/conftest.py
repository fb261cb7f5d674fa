"""Fixtures of the service's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.service.running import Service, running
from tests.workers.conftest import expected, make_service, pdfs, redis

__all__ = ["expected", "make_service", "pdfs", "redis"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service without workers: what is accepted stays queued."""
    with running(tmp_path) as started:
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened
