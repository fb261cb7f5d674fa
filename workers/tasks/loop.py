"""The body of every task: claim, work, report, until nothing is left."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from pipeline.errors import BadInput, Cancelled, DiskFull, PipelineError, RouteUnavailable
from workers.artifacts import ArtifactNotFound
from workers.store import Claim, JobKind, LeaseLost
from workers.store.states import Problem
from workers.store.types import WINDOWS
from workers.tasks.assemble import assemble
from workers.tasks.context import WorkContext
from workers.tasks.page import recognise
from workers.tasks.prepare import prepare
from workers.tracing import span

log = logging.getLogger(__name__)

Step = Callable[[WorkContext, Claim, threading.Event], None]
STEPS: dict[JobKind, Step] = {
    JobKind.PREPARE: prepare,
    JobKind.PAGE: recognise,
    JobKind.RECOGNISE: recognise,
    JobKind.ASSEMBLE: assemble,
}

_LONGEST_TASK_SECONDS = 240.0
"""Then the task ends, and another message goes on: well within the time after which Redis delivers it again."""


def work(context: WorkContext, kinds: Sequence[JobKind]) -> None:
    """Do pieces of these kinds until there is none. Raises nothing: what goes wrong is in the job store."""
    ends = time.monotonic() + _LONGEST_TASK_SECONDS
    while not context.draining.is_set() and time.monotonic() < ends:
        try:
            if not _one(context, kinds):
                return
        except SQLAlchemyError as error:
            log.error("the job store does not answer (%s); the work is given to another when its lease ends", error)
            context.draining.wait(1.0)
            return
        finally:
            context.wake()


def _one(context: WorkContext, kinds: Sequence[JobKind]) -> bool:
    """Do one piece; False if there was none."""
    if WINDOWS.isdisjoint(kinds):
        return _claim_and_run(context, kinds)
    if not context.gate.enter(context.draining):
        return False
    try:
        return _claim_and_run(context, kinds)
    finally:
        context.gate.leave()


def _claim_and_run(context: WorkContext, kinds: Sequence[JobKind]) -> bool:
    claim = context.store.claim(kinds, context.worker, context.settings.lease_seconds)
    if claim is None:
        return False
    with context.holdings.hold(claim) as cancelled:
        if context.draining.is_set():
            context.store.give_back(claim)
        else:
            _run(context, claim, cancelled)
    return True


def _run(context: WorkContext, claim: Claim, cancelled: threading.Event) -> None:
    details: dict[str, Any] = {
        "job": claim.job_key,
        "piece": claim.piece_id,
        "kind": str(claim.kind),
        "attempt": claim.attempt,
        "pages": [index + 1 for index in claim.pages],
    }
    log.debug("started", extra=details)
    try:
        with span(f"pagemill.{claim.kind}", **details):
            STEPS[claim.kind](context, claim, cancelled)
    except Cancelled:
        context.store.give_back(claim)
    except LeaseLost as error:
        log.info("stopped: %s", error.message, extra=details)
        context.store.give_back(claim)
    except SQLAlchemyError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the store says what becomes of the work
        problem = _problem(error)
        try:
            if _is_final(claim, error):
                context.store.job_failed(claim, problem)
            else:
                log.warning("%s %s: %s", claim.kind, claim.job_key, problem.message, extra=details, exc_info=error)
                context.store.try_again(claim, problem, context.settings.max_attempts)
        except LeaseLost:
            context.store.give_back(claim)


def _is_final(claim: Claim, error: Exception) -> bool:
    """Whether trying again cannot help."""
    return isinstance(error, BadInput | RouteUnavailable | ArtifactNotFound) and claim.kind not in WINDOWS


def _problem(error: Exception) -> Problem:
    if isinstance(error, PipelineError):
        return Problem(error.code, error.message)
    if isinstance(error, OSError) and (full := DiskFull.if_caused_by(error)):
        return Problem(full.code, full.message)
    return Problem("internal_error", f"{type(error).__name__}: {error}")
