"""What a page process says to its supervisor. Pickled over a socket pair, so plain and small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Started:
    """The process is up and has taken the task; its deadline starts here, not at the start of Python."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """One value that the task's function yielded."""

    value: Any


@dataclass(frozen=True, slots=True)
class Finished:
    """The task ended well."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The task ended with an error; the process itself is well."""

    error: PipelineError
    trace: str = ""
