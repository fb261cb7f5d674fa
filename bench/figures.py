"""The one form in which every bench answers: named figures, each with the bound that it must reach."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        name: snake case, stable between versions.
        value: None if it could not be measured; then `ok` is False.
        unit: "facts", "ratio", "seconds", ...
        reach: the bound, in the same unit.
        ok: whether `value` is on the right side of `reach`.
    """

    name: str
    value: float | None
    unit: str
    reach: float
    ok: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one bench.

    Attributes:
        bench: name of the subcommand.
        figures: what is held against a bound.
        details: JSON-ready evidence behind the figures.
        failures: one sentence for each thing that fell short, for people.
    """

    bench: str
    figures: tuple[Figure, ...]
    details: dict[str, Any] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True only if there are figures and each reaches its bound."""
        return bool(self.figures) and all(figure.ok for figure in self.figures)

    def to_json(self) -> str:
        """One object: bench, ok, figures, failures, details."""
        content = {
            "bench": self.bench,
            "ok": self.ok,
            "figures": [asdict(figure) for figure in self.figures],
            "failures": list(self.failures),
            "details": self.details,
        }
        return json.dumps(content, ensure_ascii=False, indent=2)


def at_least(name: str, value: float | None, unit: str, reach: float) -> Figure:
    """A figure that is good when large. The value is compared before it is rounded to four digits."""
    return Figure(name, _rounded(value), unit, reach, value is not None and value >= reach)


def at_most(name: str, value: float | None, unit: str, reach: float) -> Figure:
    """A figure that is good when small. The value is compared before it is rounded to four digits."""
    return Figure(name, _rounded(value), unit, reach, value is not None and value <= reach)


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, 4)
