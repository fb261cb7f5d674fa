"""Everything that a request to the router can fail with; each error has a code that never changes."""

from __future__ import annotations

from typing import ClassVar

from engine.pools.messages import EngineFailure


class RouterError(Exception):
    """A typed end of a request.

    Attributes:
        code: stable name.
        status: HTTP status while nothing of the answer has been sent.
        retryable: the same request may succeed later.
        retry_after_s: seconds after which to try again, where that can be said.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, retry_after_s: float | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.param = param


class InternalError(RouterError):
    """A mistake of the router's own; its log has more."""

    code, status, retryable = "internal", 500, True


class InvalidRequest(RouterError):
    """The request cannot be understood."""

    code, status = "invalid_request", 400


class Unsupported(RouterError):
    """The request asks for something that would change the answer and that is not there."""

    code, status = "unsupported", 400


class ImageRefused(RouterError):
    """An image is not one, is too large, or lies where the router does not fetch from."""

    code, status = "image_refused", 400


class TooLarge(RouterError):
    """The body is larger than the router takes."""

    code, status = "too_large", 413


class Unauthorized(RouterError):
    """The key is missing or wrong."""

    code, status = "unauthorized", 401


class Forbidden(RouterError):
    """An instance may not register from there."""

    code, status = "forbidden", 403


class StaleEpoch(RouterError):
    """An incarnation that a newer one has followed."""

    code, status = "stale_epoch", 409


class ModelNotFound(RouterError):
    """No instance serves the model."""

    code, status = "model_not_found", 404


class QueueFull(RouterError):
    """As many requests wait as may wait."""

    code, status, retryable = "queue_full", 429, True


class NoInstance(RouterError):
    """No instance can take the request, and none came in time."""

    code, status, retryable = "no_instance", 503, True


class DeadlineExceeded(RouterError):
    """The request's own time is up."""

    code, status, retryable = "deadline_exceeded", 504, True


class InstanceLost(RouterError):
    """Instances died under the request, as often as it was tried."""

    code, status, retryable = "instance_lost", 502, True


class AnswerInterrupted(RouterError):
    """An instance died in the middle of an answer that cannot be repeated, because its tokens were drawn at random."""

    code, status, retryable = "answer_interrupted", 502, True


class EngineFailed(RouterError):
    """An instance refused or gave up the request, in its own words."""

    def __init__(self, failure: EngineFailure, status: int = 500) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.http_status = status


def code_of(error: RouterError) -> str:
    """The stable code; an engine's failure has its own."""
    return error.failure.code if isinstance(error, EngineFailed) else error.code


def status_of(error: RouterError) -> int:
    """The HTTP status; an engine's failure brings its own."""
    return error.http_status if isinstance(error, EngineFailed) else error.status


def is_retryable(error: RouterError) -> bool:
    """Whether the same request may succeed on another instance or later."""
    return error.failure.retryable if isinstance(error, EngineFailed) else error.retryable
