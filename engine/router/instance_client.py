"""Calls to instances: messages in and out, every failure typed, every wait bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from engine.pools.messages import (
    Bandwidth,
    Chunk,
    Decode,
    EngineFailure,
    Generate,
    InstanceStatus,
    PeerAddress,
    Prefilled,
    RoleChange,
)
from engine.router.errors import EngineFailed, InstanceLost, RouterError
from engine.router.registry import Instance

M = TypeVar("M", bound=BaseModel)

CLEAN_UP_S = 5.0
"""Seconds that telling an instance to release or abort may take. If it does not hear it, its own lease ends it."""

CONNECT_S = 3.0


class InstanceClient:
    """One pool of connections to all instances."""

    def __init__(self, token: str | None) -> None:
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._http = httpx.AsyncClient(
            headers=headers,
            # Waits are bounded by `Instance.watched`; no proxy of the environment between router and instances.
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=4.0),
            trust_env=False,
        )
        self._background: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Let what is being cleaned up end, within CLEAN_UP_S."""
        if self._background:
            await asyncio.wait(self._background, timeout=CLEAN_UP_S)
        await self._http.aclose()

    async def status(self, url: str, seconds: float) -> InstanceStatus:
        """Ask an instance to describe itself.

        Raises:
            InstanceLost: it does not, or not in the contract's words.
        """
        try:
            async with asyncio.timeout(seconds):
                response = await self._http.get(f"{url}/v1/instance")
                response.raise_for_status()
                return InstanceStatus.model_validate_json(response.content)
        except Exception as error:  # as in `stream`
            raise InstanceLost(f"{url} does not describe itself: {_named(error)}") from error

    async def prefill(self, instance: Instance, request: Generate, seconds: float) -> Prefilled:
        """Compute a prompt there.

        Raises:
            InstanceLost: the instance is gone or silent.
            EngineFailed: it refused.
        """
        return await self._call(instance, "/v1/prefill", request, Prefilled, seconds)

    async def connect(self, instance: Instance, peer: PeerAddress, seconds: float) -> Bandwidth:
        """Let an instance greet one that it will pull from; raises as `prefill`."""
        return await self._call(instance, "/v1/connect", peer, Bandwidth, seconds)

    async def change_role(self, instance: Instance, change: RoleChange, seconds: float) -> InstanceStatus:
        """Drain, switch, verify; raises as `prefill`."""
        return await self._call(instance, "/v1/role", change, InstanceStatus, seconds)

    async def stream(
        self,
        instance: Instance,
        path: str,
        body: Decode | Generate,
        first_s: float,
        stall_s: float,
        deadline: float,
    ) -> AsyncGenerator[Chunk, None]:
        """Chunks until the one with a `finish_reason`.

        Args:
            path: /v1/decode or /v1/generate.
            first_s: seconds until the first chunk, at most.
            stall_s: seconds from one chunk to the next, at most.
            deadline: of everything, on the loop's clock.

        Raises:
            InstanceLost: it is gone or silent, or the stream was cut off.
            EngineFailed: it refused, or gave up.
        """
        request = self._http.build_request("POST", instance.url + path, content=_json(body), headers=_JSON)
        loop = asyncio.get_running_loop()
        response = lines = None
        finished = False
        wait = first_s
        try:
            async with instance.watched(wait):
                response = await self._http.send(request, stream=True)
                if response.status_code != httpx.codes.OK:
                    raise _failure(response.status_code, await response.aread())
            lines = _lines(response)
            while not finished:
                async with instance.watched(wait):
                    line = await anext(lines, None)
                if line is None:
                    raise InstanceLost(f"instance {instance.id} cut its answer off")
                chunk = Chunk.model_validate_json(line)
                if chunk.error:
                    raise EngineFailed(chunk.error, 502 if chunk.error.retryable else 500)
                wait = max(0.001, min(stall_s, deadline - loop.time()))
                finished = chunk.finish_reason is not None
                yield chunk
        except RouterError:
            raise
        except Exception as error:  # the socket libraries below httpx let errors of many kinds through
            raise InstanceLost(f"instance {instance.id}: {_named(error)}") from error
        finally:
            if response is not None:
                # Not here: closing a connection whose other end hangs must not hold up the request.
                self._later(_end(response, lines, finished))

    def release(self, instance: Instance, request_id: str) -> None:
        """The KV of a prefill is not needed any more. Returns at once."""
        self._tell(instance, "/v1/release", request_id)

    def abort(self, instance: Instance, request_id: str) -> None:
        """Stop a request there. Returns at once."""
        self._tell(instance, "/v1/abort", request_id)

    def _tell(self, instance: Instance, path: str, request_id: str) -> None:
        if not instance.lost:
            self._later(self._post_twice(instance.url + path, {"request_id": request_id}))

    async def _post_twice(self, url: str, body: dict[str, str]) -> None:
        for _ in range(2):
            try:
                await self._http.post(url, json=body)
            except Exception:  # noqa: BLE001 - as in `stream`
                continue
            return

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _call(self, instance: Instance, path: str, body: BaseModel, answer: type[M], seconds: float) -> M:
        async with instance.watched(seconds):
            try:
                response = await self._http.post(instance.url + path, content=_json(body), headers=_JSON)
                if response.status_code != httpx.codes.OK:
                    raise _failure(response.status_code, response.content)
                return answer.model_validate_json(response.content)
            except RouterError:
                raise
            except Exception as error:  # as in `stream`
                raise InstanceLost(f"instance {instance.id}: {_named(error)}") from error


_JSON = {"Content-Type": "application/json"}


def _json(body: BaseModel) -> bytes:
    return body.model_dump_json().encode()


async def _end(response: httpx.Response, lines: AsyncGenerator[bytes, None] | None, finished: bool) -> None:
    """Read to the end what has ended, so that the connection serves again; cut off what has not."""
    if lines is not None:
        if finished:
            async for _ in lines:
                pass
        await lines.aclose()
    await response.aclose()


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Lines as bytes: cheaper than `aiter_lines`, and JSON's own newline is the only one that counts."""
    rest = b""
    async for data in response.aiter_raw():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


def _failure(status: int, content: bytes) -> EngineFailed:
    try:
        failure = EngineFailure.model_validate_json(content)
    except ValidationError:
        # Not the contract's words: a proxy between, or a broken instance. Another one may do better.
        text = content[:200].decode("utf-8", "replace")
        failure = EngineFailure(code="engine_failed", message=f"HTTP {status}: {text}", retryable=status >= 500)
    return EngineFailed(failure, status if 400 <= status < 600 else 502)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLEAN_UP_S):
            await work


def _named(error: BaseException) -> str:
    text = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}{': ' + text if text else ''}"
