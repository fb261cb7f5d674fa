"""What an instance refuses or fails with: each with a code that never changes and a word on trying again."""

from __future__ import annotations

from typing import ClassVar

from engine.pools.messages import EngineFailure


class PoolError(Exception):
    """Base of every error that an instance answers with.

    Attributes:
        code: stable identifier, snake case.
        retryable: the same request may succeed on another instance, or later.
        status: of HTTP.
    """

    code: ClassVar[str] = "engine_failed"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def as_message(self) -> EngineFailure:
        return EngineFailure(code=self.code, message=self.message, retryable=self.retryable)


class BadRequest(PoolError):
    code, retryable, status = "bad_request", False, 400


class BadImage(PoolError):
    """The bytes are no picture that we can open, or too many pixels."""

    code, retryable, status = "bad_image", False, 400


class PromptTooLong(PoolError):
    code, retryable, status = "prompt_too_long", False, 400


class Unauthorised(PoolError):
    code, retryable, status = "unauthorised", False, 401


class DuplicateRequest(PoolError):
    """A request of this id is being served."""

    code, retryable, status = "duplicate_request", False, 409


class WrongRole(PoolError):
    """The instance does not do this for requests in the role that it has now."""

    code, retryable, status = "wrong_role", True, 409


class StaleEpoch(PoolError):
    """Meant for another incarnation of the instance."""

    code, retryable, status = "stale_epoch", False, 409


class Overloaded(PoolError):
    code, retryable, status = "overloaded", True, 429


class Aborted(PoolError):
    """Somebody asked for it to be stopped."""

    code, retryable, status = "aborted", False, 499


class EngineFailed(PoolError):
    """The engine under the instance has died or answered nonsense."""

    code, retryable, status = "engine_failed", True, 500


class NotReady(PoolError):
    """Loading, or failed."""

    code, retryable, status = "not_ready", True, 503


class Draining(PoolError):
    """The role is being changed or the instance stopped: it takes nothing new."""

    code, retryable, status = "draining", True, 503


class PeerUnreachable(PoolError):
    """No transport to another instance works."""

    code, retryable, status = "peer_unreachable", True, 502


class DeadlineExceeded(PoolError):
    code, retryable, status = "deadline_exceeded", False, 504
