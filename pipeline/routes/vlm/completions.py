"""One question to the engine over HTTP: streamed, with a deadline, a bound on tokens and an eye on loops.

Closing the connection is how a question is withdrawn: our router, and every server that streams, stops the work.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from PIL import Image

from pipeline.errors import EngineUnavailable, PageFailed
from pipeline.mineru_vlm import VlmRequest
from pipeline.routes.vlm.loops import has_looped
from pipeline.vlm_engine import VlmEngine

_CONNECT_SECONDS = 5.0
_CONNECT_TRIES = 3
_SERVER_TRIES = 2
"""Tries of a question that the engine answers with an error of its own, or breaks off."""

_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
"""Seconds between tries, doubled each time."""

_LOOK_FOR_LOOPS_EVERY = 200
"""Characters."""

_END_TOKEN = "<|im_end|>"
_BUSY = (429, 503)
_REFUSED = (401, 403, 404, 405)
_SYSTEM = "You are a helpful assistant."
"""What MinerU's models were trained with."""


class NoAnswer(PageFailed):
    """The engine works, and this question has no usable answer: refused, cut off, looping, too late."""


@dataclass(slots=True)
class _Reply:
    text: str = ""
    finish: str | None = None
    checked: int = 0


class Completions:
    """Asks an engine. For one event loop; to be closed in it."""

    def __init__(self, engine: VlmEngine, model: str) -> None:
        self._engine, self._model = engine, model
        self._slots = asyncio.Semaphore(engine.concurrency)
        limits = httpx.Limits(max_connections=engine.concurrency, max_keepalive_connections=engine.concurrency)
        # No proxy of the environment: the address is this installation's own.
        self._client = httpx.AsyncClient(
            headers=dict(engine.headers()),
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            limits=limits,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, request: VlmRequest, max_tokens: int, deadline: float) -> str:
        """The answer, whole.

        Args:
            request: what is asked.
            max_tokens: of the answer.
            deadline: by `time.monotonic`, for waiting in line and all tries together.

        Raises:
            NoAnswer: this question failed; others may not.
            EngineUnavailable: the engine does not answer, is busy until the deadline, or lets nobody in.
        """
        async with self._slots:
            seconds = min(self._engine.request_seconds, deadline - time.monotonic())
            if seconds <= 0:
                raise NoAnswer("the time for the page was over")
            body = await asyncio.to_thread(self._body, request, max_tokens, seconds)
            return await self._in_time(body, seconds)

    async def _in_time(self, body: dict[str, Any], seconds: float) -> str:
        busy: list[str] = []
        try:
            async with asyncio.timeout(seconds):
                return await self._tries(body, busy)
        except TimeoutError:
            if busy:
                raise EngineUnavailable(f"The engine was busy for {seconds:.0f} s ({busy[-1]}).") from None
            raise NoAnswer(f"no answer within {seconds:.0f} s") from None

    async def _tries(self, body: dict[str, Any], busy: list[str]) -> str:
        unreachable = broken = 0
        while True:
            try:
                return await self._once(body)
            except _Busy as refusal:
                busy.append(str(refusal))
                await asyncio.sleep(refusal.pause)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                unreachable += 1
                if unreachable >= _CONNECT_TRIES:
                    raise EngineUnavailable(
                        f"The engine at {self._engine.url} cannot be reached ({error or type(error).__name__})."
                    ) from None
                await asyncio.sleep(_PAUSE * 2**unreachable)
            except (httpx.TransportError, _Broken) as error:
                busy.clear()
                broken += 1
                if broken >= _SERVER_TRIES:
                    raise NoAnswer(f"the engine failed ({str(error)[:200] or type(error).__name__})") from None
                await asyncio.sleep(_PAUSE)

    async def _once(self, body: dict[str, Any]) -> str:
        reply = _Reply()
        url = f"{self._engine.url}/v1/chat/completions"
        async with self._client.stream("POST", url, json=body) as response:
            if response.status_code != 200:
                await self._refused(response)
            if "text/event-stream" in response.headers.get("content-type", ""):
                async for event in _events(response):
                    _take(reply, event)
            else:
                _take_whole(reply, await response.aread())
        return _text_of(reply)

    async def _refused(self, response: httpx.Response) -> None:
        status = response.status_code
        said = (await response.aread())[:2000].decode("utf-8", "replace")
        reason = f"{status}: {_message(said)}"
        if status in _BUSY:
            raise _Busy(reason, _retry_after(response))
        if status in _REFUSED:
            raise EngineUnavailable(f"The engine at {self._engine.url} refuses ({reason}).")
        if status >= 500:
            raise _Broken(reason)
        raise NoAnswer(f"the engine refused the question ({reason})")

    def _body(self, request: VlmRequest, max_tokens: int, seconds: float) -> dict[str, Any]:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_png(request.image)}"}}
        return {
            "model": self._model,
            "messages": [
                {"role": "system", "content": _SYSTEM},
                {"role": "user", "content": [picture, {"type": "text", "text": request.prompt}]},
            ],
            **request.sampling,
            "max_tokens": max_tokens,
            "max_completion_tokens": max_tokens,
            "skip_special_tokens": False,
            "stream": True,
        }


class _Busy(Exception):
    def __init__(self, reason: str, pause: float) -> None:
        super().__init__(reason)
        self.pause = pause


class _Broken(Exception):
    pass


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The objects of a stream of server-sent events."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        try:
            event = json.loads(data)
        except ValueError:
            raise _Broken("an event that is no JSON") from None
        if isinstance(event, dict):
            yield event


def _take(reply: _Reply, event: dict[str, Any]) -> None:
    if event.get("error"):
        raise _Broken(_message(json.dumps(event)))
    for choice in event.get("choices") or ():
        reply.text += (choice.get("delta") or {}).get("content") or ""
        reply.finish = _finish(choice) or reply.finish
    if len(reply.text) - reply.checked >= _LOOK_FOR_LOOPS_EVERY:
        reply.checked = len(reply.text)
        if has_looped(reply.text):
            raise NoAnswer("the answer repeated itself")


def _finish(choice: dict[str, Any]) -> str | None:
    """Why an answer ended. Our router says "stop" of a loop too, as OpenAI has no word for it, and adds its own."""
    return "repetition" if choice.get("stop_reason") == "repetition" else choice.get("finish_reason")


def _take_whole(reply: _Reply, body: bytes) -> None:
    """An answer of a server that does not stream."""
    try:
        answer = json.loads(body)
        (choice,) = answer["choices"]
        reply.text, reply.finish = choice["message"]["content"] or "", _finish(choice)
    except (ValueError, KeyError, TypeError):
        raise _Broken(_message(body[:2000].decode("utf-8", "replace"))) from None


def _text_of(reply: _Reply) -> str:
    if reply.finish is None:
        raise _Broken("the answer broke off")
    if reply.finish == "length":
        raise NoAnswer("the answer was longer than its place on the page")
    if reply.finish == "repetition" or has_looped(reply.text):
        raise NoAnswer("the answer repeated itself")
    if reply.finish != "stop":
        raise NoAnswer(f"the answer ended with {reply.finish[:40]}")
    return reply.text.removesuffix(_END_TOKEN)


def _message(said: str) -> str:
    """What an error says, in one line, whatever its form."""
    try:
        value = json.loads(said)
    except ValueError:
        value = said
    while isinstance(value, dict):
        value = next((value[key] for key in ("error", "message", "detail") if key in value), str(value))
    return " ".join(str(value).split())[:200]


def _retry_after(response: httpx.Response) -> float:
    try:
        wanted = float(response.headers.get("retry-after", ""))
    except ValueError:
        wanted = 2 * _PAUSE
    # Not all at once again.
    return min(max(wanted, _PAUSE), _LONGEST_PAUSE) * (1 + random.random() / 4)


def _png(image: Image.Image) -> str:
    with io.BytesIO() as buffer:
        # Little compression: it goes over a local network, and both sides have better things to compute.
        image.save(buffer, format="PNG", compress_level=1)
        return base64.b64encode(buffer.getvalue()).decode("ascii")
