"""A streamed request as its client sees it: tokens, and when each piece came."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass(slots=True)
class Streamed:
    """Attributes:
    started: `time.perf_counter` when it was sent; `at` when each piece with tokens came.
    finish_reason: None if it ended otherwise; `error` is the code then.
    """

    started: float
    tokens: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token; NaN if none came."""
        return self.at[0] - self.started if self.at else float("nan")

    @property
    def tpot_s(self) -> float:
        """Mean seconds from one token to the next; NaN with fewer than two."""
        return (self.at[-1] - self.at[0]) / (len(self.tokens) - 1) if len(self.tokens) > 1 else float("nan")

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between pieces."""
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


async def streamed(
    client: httpx.AsyncClient, url: str, body: Mapping[str, Any], answer: Streamed | None = None
) -> Streamed:
    """Send a chat request to a router and read its stream to the end; failures are in the answer.

    Args:
        answer: filled as the stream comes, for who wants to watch it.
    """
    answer = answer or Streamed(0.0)
    answer.started = time.perf_counter()
    given = {"temperature": 0, **body, "stream": True, "return_token_ids": True}
    try:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=given) as response:
            if response.status_code != httpx.codes.OK:
                answer.error = _code(await response.aread())
                return answer
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    _take(answer, json.loads(line[6:]))
    except httpx.HTTPError as error:
        answer.error = type(error).__name__
    if answer.error is None and answer.finish_reason is None:
        answer.error = "cut_off"
    return answer


def _take(answer: Streamed, event: dict[str, Any]) -> None:
    if "error" in event:
        answer.error = event["error"]["code"]
        return
    for choice in event["choices"]:
        tokens = choice.get("token_ids") or []
        if tokens:
            answer.at.append(time.perf_counter())
            answer.tokens += tokens
        answer.text += choice["delta"].get("content", "")
        answer.finish_reason = choice["finish_reason"] or answer.finish_reason


def _code(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return "unreadable"
