"""A router's part, as little of it as tests need."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import BaseModel

from engine.pools.messages import (
    Chunk,
    Decode,
    EngineFailure,
    Generate,
    InstanceStatus,
    PeerAddress,
    Prefilled,
    Sampling,
)
from engine.pools.supervisor import Supervised

START_SECONDS = 240.0
_names = itertools.count()


class Refused(Exception):
    def __init__(self, failure: EngineFailure) -> None:
        super().__init__(failure.code, failure.message)
        self.failure = failure


@dataclass
class Answered:
    """An answer, whole."""

    chunks: list[Chunk] = field(default_factory=list)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for chunk in self.chunks for token in chunk.token_ids)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def last(self) -> Chunk:
        return self.chunks[-1]


class Client:
    """Talks to one instance."""

    def __init__(self, instance: Supervised) -> None:
        self.instance = instance

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[httpx.AsyncClient]:
        headers = {"Authorization": f"Bearer {self.instance.settings.token}"}
        async with httpx.AsyncClient(
            base_url=self.instance.url, headers=headers, timeout=120, trust_env=False, verify=False
        ) as http:
            yield http

    async def call(self, path: str, message: BaseModel | dict[str, Any] | None = None) -> bytes:
        async with self._http() as http:
            if message is None:
                answer = await http.get(path)
            elif isinstance(message, BaseModel):
                answer = await http.post(path, content=message.model_dump_json())
            else:
                answer = await http.post(path, json=message)
        if answer.status_code != 200:
            raise Refused(EngineFailure.model_validate_json(answer.content))
        return answer.content

    async def status(self) -> InstanceStatus:
        return InstanceStatus.model_validate_json(await self.call("/v1/instance"))

    async def prefill(self, request: Generate) -> Prefilled:
        return Prefilled.model_validate_json(await self.call("/v1/prefill", request))

    async def generate(self, request: Generate) -> Answered:
        return await self._stream("/v1/generate", request)

    async def decode(
        self, request: Generate, prefilled: Prefilled, source: PeerAddress, pull_deadline_s: float = 30
    ) -> Answered:
        order = Decode(request=request, prefilled=prefilled, source=source, pull_deadline_s=pull_deadline_s)
        found = await self._stream("/v1/decode", order)
        return Answered([prefilled.first, *found.chunks])

    async def chunks(self, path: str, message: BaseModel) -> AsyncIterator[Chunk]:
        async with self._http() as http, http.stream("POST", path, content=message.model_dump_json()) as answer:
            if answer.status_code != 200:
                raise Refused(EngineFailure.model_validate_json(await answer.aread()))
            async for line in answer.aiter_lines():
                yield Chunk.model_validate_json(line)

    async def _stream(self, path: str, message: BaseModel) -> Answered:
        return Answered([chunk async for chunk in self.chunks(path, message)])

    async def healthy(self) -> None:
        """Wait until it serves."""

        async def is_healthy() -> bool:
            try:
                await self.call("/health")
            except (httpx.TransportError, ValueError, Refused):
                return False
            return True

        await until(is_healthy, START_SECONDS)

    async def holds_nothing(self) -> None:
        """Wait until no block is held and nothing runs."""

        deadline = time.monotonic() + 30
        while True:
            now = await self.status()
            if now.free_blocks == now.total_blocks and not (now.leases or now.running or now.waiting):
                return
            assert time.monotonic() < deadline, f"still held: {now}"
            await asyncio.sleep(0.05)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Wait for something to become true; fail if it does not."""
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        await asyncio.sleep(0.05)


def request(what: Any, tokens: int = 24, **sampling: Any) -> Generate:
    """Of a question or of token ids; goes on to as many tokens as it may have."""
    given: dict[str, Any] = (
        {"messages": what.messages()} if hasattr(what, "messages") else {"prompt_token_ids": tuple(what)}
    )
    settings = {"ignore_eos": True, **sampling}
    return Generate(request_id=f"r{next(_names)}", sampling=Sampling(max_tokens=tokens, **settings), **given)


def only(address: PeerAddress, transport: str) -> PeerAddress:
    """The same instance, reachable by one transport alone."""
    offers = tuple(offer for offer in address.interconnect if f'"transport": "{transport}"' in offer)
    assert offers, f"{transport} is not offered"
    return address.model_copy(update={"interconnect": offers})
