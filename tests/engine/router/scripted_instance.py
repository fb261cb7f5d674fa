"""An instance without an engine: it speaks the contract over HTTP, its tokens follow from the prompt, and it can be
told to be slow, to hang, to fail or to die. Its KV "blocks" are counted like real ones: leased, pulled, freed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.pools.messages import (
    Bandwidth,
    Chunk,
    Decode,
    EngineFailure,
    FinishReason,
    Generate,
    Health,
    ImageGrid,
    InstanceStatus,
    KVHandle,
    PeerAddress,
    Prefilled,
    Role,
    RoleChange,
    TextPart,
    Usage,
)
from engine.pools.prefixes import prefix_hashes
from engine.router.server import listen, url_of

BLOCK = 16
TOTAL_BLOCKS = 4096
KV_BYTES = 1000


def words_of(request: Generate) -> list[str]:
    """The prompt, as this model tokenises it."""
    if request.prompt_token_ids:
        return [str(token) for token in request.prompt_token_ids]
    words = []
    for message in request.messages:
        for part in message.content:
            words += part.text.split() if isinstance(part, TextPart) else [f"image:{part.image[:64]}"]
    return words or ["nothing"]


def tokens_of(words: list[str], count: int) -> list[int]:
    """The answer to a prompt: the same on every instance, different for every prompt."""
    seed = hashlib.sha256(json.dumps(words).encode()).digest()
    return [int.from_bytes(hashlib.sha256(seed + n.to_bytes(4)).digest()[:4]) % 50_000 for n in range(count)]


def text_of(tokens: list[int]) -> str:
    """The text of some tokens."""
    return "".join(f"t{token} " for token in tokens)


class Script:
    """The instance."""

    def __init__(self, arguments: argparse.Namespace, url: str) -> None:
        self.arguments = arguments
        self.url = url
        self.role = Role(arguments.role)
        self.phase = "ready"
        self.held: dict[str, int] = {}
        self.leases: dict[str, tuple[str, float]] = {}
        self.running: dict[str, asyncio.Task[Any] | None] = {}
        self.seen: list[dict[str, Any]] = []
        self.aborted: list[str] = []
        self.released: list[str] = []
        self.peers: list[str] = []
        self.roles: list[str] = []
        self.prefixes: list[str] = []
        self.fault: dict[str, Any] = json.loads(arguments.fault)
        self.started = time.monotonic()
        self.http = httpx.AsyncClient(timeout=5, trust_env=False)
        self.generated = 0

    def status(self) -> InstanceStatus:
        used = sum(self.held.values())
        return InstanceStatus(
            address=self.address(),
            model=self.arguments.model,
            vendor="scripted",
            device="none",
            mode="eager",
            role=self.role,
            phase=self.phase,
            session_len=4096,
            max_batch_size=self.arguments.max_batch_size,
            block_size=BLOCK,
            kv_bytes_per_token=KV_BYTES,
            running=len(self.running),
            waiting=0,
            free_blocks=TOTAL_BLOCKS - used,
            total_blocks=TOTAL_BLOCKS,
            leases=len(self.leases),
            remaining_tokens=0,
            prefix_roots=tuple(self.prefixes[-100:]),
            health=Health(ok=self.fault.get("canary", True), reason="", age_s=0.1, seconds=0.01),
            uptime_s=time.monotonic() - self.started,
        )

    def address(self) -> PeerAddress:
        return PeerAddress(
            engine_id=self.arguments.id, epoch=self.arguments.epoch, url=self.url, interconnect=("scripted",)
        )

    def hold(self, key: str, tokens: int) -> None:
        self.held[key] = -(-tokens // BLOCK)

    def free(self, request_id: str) -> None:
        self.held.pop(request_id, None)
        self.leases.pop(request_id, None)

    async def prefill(self, request: Generate) -> Prefilled:
        await self.misbehave("prefill")
        words = words_of(request)
        self.hold(request.request_id, len(words))
        await asyncio.sleep(self.fault.get("prefill_s", 0.002) + self.fault.get("word_s", 0.0) * len(words))
        tokens = self.answer(request, words)
        first, reason = tokens[:1], self.reason(request, words, 1)
        self.prefixes += prefix_hashes(request.messages)
        kv = None
        if reason is None:
            self.leases[request.request_id] = (request.request_id, time.monotonic() + self.arguments.lease)
            kv = KVHandle(
                engine_id=self.arguments.id,
                epoch=self.arguments.epoch,
                lease=request.request_id,
                block_ids=tuple(range(self.held[request.request_id])),
                lease_s=self.arguments.lease,
            )
        else:
            self.free(request.request_id)
        images = [w for w in words if w.startswith("image:")]
        return Prefilled(
            request_id=request.request_id,
            prompt_token_ids=tuple(range(len(words))),
            images=tuple(ImageGrid(offset=n, tokens=1, grid_thw=(1, 2, 2)) for n in range(len(images))),
            first=Chunk(
                token_ids=tuple(first),
                text=text_of(first),
                finish_reason=reason,
                usage=Usage(prompt_tokens=len(words), completion_tokens=1),
            ),
            kv=kv,
            queue_s=0.0,
            prefill_s=0.002,
        )

    def answer(self, request: Generate, words: list[str]) -> list[int]:
        if request.sampling.temperature > 0:
            return [random.randrange(50_000) for _ in range(request.sampling.max_tokens)]
        return tokens_of(words, request.sampling.max_tokens)

    def reason(self, request: Generate, words: list[str], count: int) -> FinishReason | None:
        natural = next((int(w.removeprefix("end-after:")) for w in words if w.startswith("end-after:")), None)
        if natural is not None and count >= natural:
            return FinishReason.REPETITION if "loop" in words else FinishReason.STOP
        return FinishReason.LENGTH if count >= request.sampling.max_tokens else None

    async def decode(self, request: Generate, start: int, first: Chunk | None) -> AsyncIterator[Chunk]:
        words = words_of(request)
        self.hold(request.request_id, len(words) + request.sampling.max_tokens)
        tokens = self.answer(request, words)
        for index in range(start, len(tokens)):
            await asyncio.sleep(self.fault.get("token_s", 0.001))
            self.generated += 1
            await self.misbehave("token")
            reason = self.reason(request, words, index + 1)
            one = tokens[index : index + 1]
            chunk = Chunk(token_ids=tuple(one), text=text_of(one), finish_reason=reason)
            if first is not None:
                chunk, first = (
                    first.model_copy(update=chunk.model_dump(include={"token_ids", "text", "finish_reason"})),
                    None,
                )
            if reason:
                yield chunk.model_copy(update={"usage": Usage(prompt_tokens=len(words), completion_tokens=index + 1)})
                return
            yield chunk

    async def misbehave(self, where: str) -> None:
        fault = self.fault
        if fault.get("die_at") == where and self.generated >= fault.get("after", 0):
            os._exit(9)
        if fault.get("hang_at") == where and self.generated >= fault.get("after", 0):
            await asyncio.sleep(3600)
        if fault.get("fail_at") == where and self.generated >= fault.get("after", 0):
            if "times" in fault:
                fault["times"] -= 1
                if fault["times"] <= 0:
                    fault.pop("fail_at")
            raise Failed(
                EngineFailure(
                    code=fault.get("code", "out_of_memory"),
                    message="as told",
                    retryable=fault.get("retryable", True),
                )
            )


class Failed(Exception):
    def __init__(self, failure: EngineFailure) -> None:
        super().__init__(failure.code)
        self.failure = failure


def create_app(script: Script) -> Starlette:
    def guarded(handler: Any) -> Any:
        async def call(request: Request) -> Response:
            token = script.arguments.token
            if token and request.headers.get("authorization") != f"Bearer {token}":
                failure = EngineFailure(code="unauthorized", message="no token", retryable=False)
                return JSONResponse(failure.model_dump(), 401)
            try:
                return await handler(request)
            except Failed as failed:
                return JSONResponse(failed.failure.model_dump(), 503 if failed.failure.retryable else 422)

        return call

    async def instance(request: Request) -> Response:
        return JSONResponse(script.status().model_dump(mode="json"))

    async def prefill(request: Request) -> Response:
        body = Generate.model_validate_json(await request.body())
        script.seen.append(body.model_dump(mode="json"))
        script.running[body.request_id] = asyncio.current_task()
        try:
            return JSONResponse((await script.prefill(body)).model_dump(mode="json"))
        except BaseException:
            script.free(body.request_id)
            raise
        finally:
            script.running.pop(body.request_id, None)

    async def lines(request: Generate, chunks: AsyncIterator[Chunk]) -> AsyncIterator[bytes]:
        script.running[request.request_id] = asyncio.current_task()
        try:
            async for chunk in chunks:
                if request.request_id in script.aborted:
                    return
                yield chunk.model_dump_json().encode() + b"\n"
        except Failed as failed:
            yield Chunk(error=failed.failure).model_dump_json().encode() + b"\n"
        finally:
            script.running.pop(request.request_id, None)
            script.free(request.request_id)

    async def decode(request: Request) -> Response:
        body = Decode.model_validate_json(await request.body())
        script.seen.append(body.request.model_dump(mode="json"))
        await script.misbehave("pull")
        assert body.prefilled.kv is not None
        fallback, nbytes, began = None, None, time.monotonic()
        try:
            if script.fault.get("fail_pull"):
                raise httpx.ConnectError("told to fail")
            pulled = await script.http.post(
                f"{body.source.url}/test/pull",
                json={"lease": body.prefilled.kv.lease, "epoch": body.prefilled.kv.epoch},
            )
            pulled.raise_for_status()
            nbytes = len(body.prefilled.prompt_token_ids) * KV_BYTES
        except httpx.HTTPError as error:
            fallback = f"pull failed: {type(error).__name__}"
            await asyncio.sleep(script.fault.get("prefill_s", 0.002))
        first = Chunk(
            fallback=fallback, pull_bytes=nbytes, pull_s=None if fallback else max(1e-6, time.monotonic() - began)
        )
        chunks = script.decode(body.request, 1, first)
        return StreamingResponse(lines(body.request, chunks), media_type="application/x-ndjson")

    async def generate(request: Request) -> Response:
        body = Generate.model_validate_json(await request.body())
        script.seen.append(body.model_dump(mode="json"))
        await script.misbehave("generate")
        script.prefixes += prefix_hashes(body.messages)
        words = words_of(body)
        await asyncio.sleep(script.fault.get("prefill_s", 0.002) + script.fault.get("word_s", 0.0) * len(words))
        return StreamingResponse(lines(body, script.decode(body, 0, None)), media_type="application/x-ndjson")

    async def release(request: Request) -> Response:
        request_id = (await request.json())["request_id"]
        script.released.append(request_id)
        script.free(request_id)
        return JSONResponse({})

    async def abort(request: Request) -> Response:
        request_id = (await request.json())["request_id"]
        script.aborted.append(request_id)
        task = script.running.pop(request_id, None)
        if task:
            task.cancel()
        script.free(request_id)
        return JSONResponse({})

    async def role(request: Request) -> Response:
        body = RoleChange.model_validate_json(await request.body())
        script.roles.append(body.role.value)
        await script.misbehave("role")
        if body.epoch != script.arguments.epoch:
            failure = EngineFailure(code="stale_epoch", message="another incarnation", retryable=False)
            return JSONResponse(failure.model_dump(), 409)
        deadline = time.monotonic() + body.drain_s
        script.phase = "draining"
        while script.held and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        script.role, script.phase = body.role, "ready"
        return JSONResponse(script.status().model_dump(mode="json"))

    async def connect(request: Request) -> Response:
        peer = PeerAddress.model_validate_json(await request.body())
        await script.misbehave("connect")
        script.peers.append(f"{peer.engine_id}/{peer.epoch}")
        speed = Bandwidth(transport="scripted", bytes_per_s=script.fault.get("bandwidth", 1e9))
        return JSONResponse(speed.model_dump())

    async def pull(request: Request) -> Response:
        body = await request.json()
        ok = body["epoch"] == script.arguments.epoch and body["lease"] in script.leases
        return JSONResponse({}, 200 if ok else 410)

    async def fault(request: Request) -> Response:
        script.fault = await request.json()
        return JSONResponse({})

    async def seen(request: Request) -> Response:
        return JSONResponse(
            {
                "requests": script.seen,
                "aborted": script.aborted,
                "released": script.released,
                "peers": script.peers,
                "roles": script.roles,
                "held": script.held,
                "leases": list(script.leases),
                "running": list(script.running),
                "generated": script.generated,
            }
        )

    async def renew() -> None:
        while True:
            now = time.monotonic()
            for request_id, (_, until) in list(script.leases.items()):
                if now > until:
                    script.free(request_id)
            if script.arguments.router and not script.fault.get("silent"):
                headers = {"Authorization": f"Bearer {script.arguments.token}"} if script.arguments.token else {}
                content = script.status().model_dump_json()
                with contextlib.suppress(httpx.HTTPError):
                    await script.http.post(f"{script.arguments.router}/v1/instances", content=content, headers=headers)
            await asyncio.sleep(script.arguments.heartbeat)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(renew())
        yield
        task.cancel()

    posts = {
        "/v1/prefill": prefill,
        "/v1/decode": decode,
        "/v1/generate": generate,
        "/v1/release": release,
        "/v1/abort": abort,
        "/v1/role": role,
        "/v1/connect": connect,
    }
    routes = [Route(path, guarded(handler), methods=["POST"]) for path, handler in posts.items()]
    routes += [Route("/v1/instance", guarded(instance))]
    routes += [Route("/test/fault", fault, methods=["POST"]), Route("/test/seen", seen)]
    routes += [Route("/test/pull", pull, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


def run(given: list[str], ready: Callable[[str], None]) -> None:
    """Serve until killed. `given`: the command line; `ready` is told the address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--id", required=True)
    parser.add_argument("--role", default="hybrid")
    parser.add_argument("--router", default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--epoch", type=int, default=1)
    parser.add_argument("--model", default="/models/scripted")
    parser.add_argument("--token", default="")
    parser.add_argument("--max-batch-size", type=int, default=16)
    parser.add_argument("--heartbeat", type=float, default=0.2)
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--fault", default="{}")
    arguments = parser.parse_args(given)
    listening = listen("127.0.0.1", arguments.port)
    script = Script(arguments, url_of(listening))
    ready(script.url)
    uvicorn.Server(uvicorn.Config(create_app(script), log_config=None, access_log=False)).run(sockets=[listening])
