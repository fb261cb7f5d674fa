from __future__ import annotations

from bench.startup import FORBIDDEN, imported_modules


def test_help_imports_the_command_line_and_nothing_heavy() -> None:
    imported = imported_modules()
    assert "typer" in imported
    assert not imported & FORBIDDEN
