"""Options given as plain text mean what their names say, and unknown ones are refused at once."""

from __future__ import annotations

import pytest

from pipeline import ParseOptions, Quality, Route


def test_names_become_routes_and_qualities() -> None:
    options = ParseOptions(route="ocr", quality="high")  # type: ignore[arg-type]
    assert options.route is Route.OCR
    assert options.quality is Quality.HIGH
    assert options == ParseOptions(route=Route.OCR, quality=Quality.HIGH)


def test_an_unknown_route_is_refused() -> None:
    with pytest.raises(ValueError, match="magic"):
        ParseOptions(route="magic")  # type: ignore[arg-type]


def test_the_password_has_no_part_in_the_fingerprint() -> None:
    assert "sesame" not in str(ParseOptions(password="sesame").fingerprint())
