"""Answers in OpenAI's words: a completion, pieces of one, an error."""

from __future__ import annotations

import json
from typing import Any

from engine.pools.messages import Chunk, FinishReason
from engine.router.errors import RouterError, code_of, is_retryable, status_of
from engine.router.serving import Progress

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_TYPES |= {413: "invalid_request_error", 429: "rate_limit_error"}

DONE = b"data: [DONE]\n\n"


def completion(
    id: str, created: int, model: str, progress: Progress, reason: FinishReason, with_tokens: bool
) -> dict[str, Any]:
    """The whole answer."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": progress.answer.text, "refusal": None},
        "logprobs": None,
        **_finish(reason),
    }
    answer: dict[str, Any] = {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage(progress),
    }
    if with_tokens:
        choice["token_ids"] = progress.answer.tokens
        answer["prompt_token_ids"] = progress.prompt_token_ids
    return answer


class Pieces:
    """The events of one streamed answer."""

    def __init__(self, id: str, created: int, model: str, with_usage: bool, with_tokens: bool) -> None:
        self._head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._with_usage = with_usage
        self._with_tokens = with_tokens

    def first(self) -> bytes:
        """Says whose turn it is."""
        return self._event({"role": "assistant", "content": ""}, _finish(None))

    def piece(self, chunk: Chunk) -> bytes:
        """Some text; the last one says why it is."""
        delta = {"content": chunk.text} if chunk.text or self._with_tokens else {}
        return self._event(delta, _finish(chunk.finish_reason), chunk.token_ids if self._with_tokens else None)

    def end(self, progress: Progress) -> bytes:
        """After the last piece."""
        if not self._with_usage:
            return DONE
        return _sse({**self._head, "choices": [], "usage": usage(progress)}) + DONE

    def _event(self, delta: dict[str, Any], finish: dict[str, Any], tokens: tuple[int, ...] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, **finish}
        if tokens is not None:
            choice["token_ids"] = tokens
        return _sse({**self._head, "choices": [choice], **({"usage": None} if self._with_usage else {})})


def usage(progress: Progress) -> dict[str, Any]:
    """Tokens of the request."""
    output = len(progress.answer.tokens)
    return {
        "prompt_tokens": progress.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": progress.prompt_tokens + output,
        "prompt_tokens_details": {"cached_tokens": progress.cached_tokens, "image_tokens": progress.image_tokens},
    }


def error_body(error: RouterError) -> dict[str, Any]:
    """As OpenAI's clients read it; `code` never changes."""
    kind = _TYPES.get(status_of(error), "server_error")
    return {
        "error": {
            "message": str(error),
            "type": kind,
            "param": error.param,
            "code": code_of(error),
            "retryable": is_retryable(error),
        }
    }


def error_event(error: RouterError) -> bytes:
    """In the middle of a stream: the answer is not complete."""
    return _sse(error_body(error)) + DONE


def _finish(reason: FinishReason | None) -> dict[str, Any]:
    """OpenAI knows no loops: one that was stopped has ended, and `stop_reason` says how."""
    if reason is FinishReason.REPETITION:
        return {"finish_reason": "stop", "stop_reason": "repetition"}
    return {"finish_reason": reason.value if reason else None}


def _sse(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n\n"
