"""Logs of the service: lines for people, or one JSON object a line, with the ids of documents, jobs and pages.

Whatever a log call gives as `extra` becomes a field of the JSON object (`document`, `job`, `piece`, `page`, ...).
"""

from __future__ import annotations

import logging
from enum import StrEnum

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def configure_logs(level: str, form: LogFormat) -> None:
    """Send this program's logs to standard error. Call it once, at the start.

    Raises:
        ValueError: there is no such level.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_json_formatter() if form is LogFormat.JSON else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    return JsonFormatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s",
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
    )
