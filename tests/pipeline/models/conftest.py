"""The models are loaded once for all tests of this folder."""

from __future__ import annotations

import pytest

from pipeline.models import Models


@pytest.fixture(scope="session")
def models() -> Models:
    return Models(threads=1)
