"""The versions that decide a result are known also where the parsers are not installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

from pipeline import versions


def test_installed_versions_are_told() -> None:
    assert versions.parser_versions()["mineru"] == version("mineru")


def test_without_the_parsers_the_pins_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    installed = versions.parser_versions()
    monkeypatch.setattr(versions, "version", absent)
    monkeypatch.setattr(versions, "version_of", versions.version_of.__wrapped__)  # without what it remembers
    for name in ("mineru", "docvortex", "rapidocr"):
        assert versions.version_of(name) == installed[name]
    assert versions.version_of("no-such-package") is None
