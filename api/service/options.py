"""From the text of a form or a body to the options of a parse, or a refusal that names the option."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from api.service.context import Context
from api.service.problems import UnsupportedOption
from pipeline.errors import BadPageRange
from pipeline.options import ParseOptions
from pipeline.page_model import Quality, Route
from pipeline.page_range import check_selection
from pipeline.vlm_engine import required_engine
from workers.webhooks import check_url

FIELDS = ("route", "pages", "password", "quality", "force", "priority", "webhook", "wait")
"""The options of an upload, by the names of their form fields."""

Choice = TypeVar("Choice", bound=StrEnum)

MAX_PRIORITY = 100
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client asks for beside the files themselves."""

    options: ParseOptions
    priority: int = 0
    webhook: str | None = None


def read_submission(context: Context, fields: Mapping[str, str | None]) -> Submission:
    """Read the fields of FIELDS; those not given have their defaults.

    Raises:
        UnsupportedOption: a value is none that the option takes. BadPageRange: the page selection is not one.
        WebhookRefused: the service may not call that address. RouteUnavailable: vlm, and there is no engine.
    """
    pages = (fields.get("pages") or "").strip()
    if len(pages) > 1000:
        raise BadPageRange("The page selection is longer than 1,000 characters.")
    check_selection(pages)
    route = _choice(Route, "route", fields.get("route"))
    if route is Route.VLM:
        required_engine()
    options = ParseOptions(
        route=route,
        pages=pages,
        password=fields.get("password") or None,
        quality=_choice(Quality, "quality", fields.get("quality")),
        force=flag("force", fields.get("force")),
    )
    webhook = (fields.get("webhook") or "").strip() or None
    if webhook:
        check_url(webhook, context.webhooks)
    return Submission(options, _priority(fields.get("priority")), webhook)


def read_wait(value: str | None) -> float:
    """Seconds to wait for a result."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UnsupportedOption(f"wait={value[:40]!r} is not a number of seconds.", option="wait")
    return seconds


def flag(name: str, value: str | None) -> bool:
    text = (value or "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UnsupportedOption(f"{name}={text[:40]!r} is neither true nor false.", option=name)


def _choice(kind: type[Choice], name: str, value: str | None) -> Choice:
    text = (value or "").strip().lower()
    if not text:
        return next(iter(kind))  # the first of each is its default
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(kind)
        raise UnsupportedOption(f"{name}={text[:40]!r} is not known. Known: {known}.", option=name) from None


def _priority(value: str | None) -> int:
    text = (value or "0").strip()
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 6 and abs(int(text)) <= MAX_PRIORITY):
        raise UnsupportedOption(
            f"priority={text[:40]!r} is no whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}.", option="priority"
        )
    return int(text)
