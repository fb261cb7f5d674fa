"""The exit codes of `pagemill parse`, and how the ends of several documents make one code."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from api.cli.batch import Outcome


class ExitCode(IntEnum):
    DONE = 0
    USAGE = 2
    BAD_INPUT = 3
    PARTIAL = 4
    FAILED = 5
    INTERRUPTED = 130


_WORST_FIRST = (ExitCode.FAILED, ExitCode.BAD_INPUT, ExitCode.PARTIAL)


def exit_code(outcomes: Iterable[Outcome]) -> ExitCode:
    """The code for a run: the worst end among its documents (failed, then bad input, then partial)."""
    ends = {_of_one(outcome) for outcome in outcomes}
    return next((code for code in _WORST_FIRST if code in ends), ExitCode.DONE)


def _of_one(outcome: Outcome) -> ExitCode:
    from pipeline import Status

    if outcome.error is not None:
        return ExitCode.BAD_INPUT if outcome.error.bad_input else ExitCode.FAILED
    assert outcome.document is not None
    by_status = {Status.DONE: ExitCode.DONE, Status.PARTIAL: ExitCode.PARTIAL, Status.FAILED: ExitCode.FAILED}
    return by_status[outcome.document.status]
