"""Write the tables of settings in docs/operations.md from the classes that read them.

usage: python scripts/settings-tables.py [--check]    with --check, exit 1 if the document is not up to date
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings

DOCUMENT = Path(__file__).parents[1] / "docs" / "operations.md"
_TABLE = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def classes() -> dict[str, type[BaseSettings]]:
    """Every class of settings, by the name that its table has in the document."""
    from api.service.settings import ApiSettings
    from pipeline.settings import PipelineSettings
    from workers.artifacts.sweeper import SweepSettings
    from workers.settings import ServiceSettings
    from workers.webhooks.settings import WebhookSettings

    return {
        "service": ServiceSettings,
        "api": ApiSettings,
        "sweep": SweepSettings,
        "webhooks": WebhookSettings,
        "pipeline": PipelineSettings,
    }


def with_tables(text: str) -> str:
    """The document with every table as the classes are now."""
    known = classes()
    return _TABLE.sub(lambda match: f"{match[1]}{table(known[match[2]])}{match[3]}", text)


def table(settings: type[BaseSettings]) -> str:
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for name, field in settings.model_fields.items():
        variable = f"{settings.model_config.get('env_prefix', '')}{name}".upper()
        default = _default(field.get_default(call_default_factory=True))
        rows.append(f"| `{variable}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Path):
        # As it is for whoever reads this, not for whoever made the table.
        return f"`{'~' / value.relative_to(Path.home()) if value.is_relative_to(Path.home()) else value}`"
    if isinstance(value, bool | list | tuple | set | frozenset | dict):
        return f"`{json.dumps(list(value) if not isinstance(value, bool | dict) else value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def main() -> int:
    text = DOCUMENT.read_text("utf-8")
    fresh = with_tables(text)
    if "--check" in sys.argv:
        return int(text != fresh)
    DOCUMENT.write_text(fresh, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
