"""Which versions of the parsers decide a result, also asked in a process that has none of them."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version

PARSERS = ("pagemill", "mineru", "docvortex", "rapidocr", "pypdfium2")

_PIN = re.compile(r"^(?P<name>[\w.-]+)\s*==\s*(?P<version>[\w.!+-]+)")


def parser_versions() -> dict[str, str | None]:
    """Version of each of PARSERS; None for one that is neither installed nor pinned."""
    return {name: version_of(name) for name in PARSERS}


@lru_cache
def version_of(distribution: str) -> str | None:
    """The version installed here, else the one that Pagemill pins.

    The API's image has no parsers, and still must know which ones its workers have: the versions are part of what
    makes two requests equal.
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        return _pinned(distribution)


def _pinned(distribution: str) -> str | None:
    try:
        stated = requires("pagemill") or []
    except PackageNotFoundError:
        return None
    pins = (match for line in stated if (match := _PIN.match(line)))
    return next((pin["version"] for pin in pins if pin["name"].lower() == distribution.lower()), None)
