"""`POST /v1/chat/completions`: the answer whole or in pieces; a client that leaves ends its request everywhere."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from engine.pools.messages import FinishReason
from engine.router.errors import InstanceLost, InvalidRequest, RouterError, TooLarge, status_of
from engine.router.openai.chat_request import ChatRequest, Prompt, parse_chat, prompt_of, sampling_of
from engine.router.openai.chat_response import Pieces, completion, error_body, error_event
from engine.router.openai.images import ImagePolicy
from engine.router.router import Router
from engine.router.serving import Progress
from engine.router.ticket import Ticket

PRIORITY_HEADER = "x-pagemill-priority"
REQUEST_ID_HEADER = b"x-request-id"


class ChatCompletions:
    """The endpoint, as an ASGI application: it must hear of a client that leaves while it sends."""

    def __init__(self, router: Router, check_user: Callable[[Request], None]) -> None:
        self._router = router
        self._check_user = check_user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = Request(scope, receive)
            self._check_user(request)
            chat = parse_chat(_json(await _body(request, self._router.settings.max_body_mb << 20)))
            ticket = await self._ticket(request, chat)
        except RouterError as error:
            await error_response(error)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        work = self._stream if chat.stream else self._whole
        await _until_disconnected(receive, work(chat, ticket, scope, send))

    async def _ticket(self, request: Request, chat: ChatRequest) -> Ticket:
        settings = self._router.settings
        model = self._router.model(chat.model)
        policy = ImagePolicy(
            frozenset(settings.image_hosts), settings.max_body_mb << 20, settings.max_image_megapixels * 10**6
        )
        prompt = await prompt_of(chat, policy, settings.max_images) if chat.messages else Prompt((), (), 0)
        return self._router.ticket(
            model,
            prompt,
            sampling_of(chat, self._router.session_len(model)),
            chat.timeout,
            _priority(request, chat),
            chat.user or (request.client.host if request.client else ""),
            chat.prompt_token_ids,
        )

    async def _whole(self, chat: ChatRequest, ticket: Ticket, scope: Scope, send: Send) -> None:
        progress, reason = Progress(), None
        try:
            async with aclosing(self._router.serving.answer(ticket, progress, may_restart=True)) as chunks:
                async for chunk in chunks:
                    reason = chunk.finish_reason
            if reason is None or reason is FinishReason.ABORT:
                raise InstanceLost("the answer was ended by its instance")
        except RouterError as error:
            await error_response(error)(scope, _nothing, send)
            return
        body = completion(_id(ticket), int(time.time()), ticket.model, progress, reason, bool(chat.return_token_ids))
        await JSONResponse(body, headers={"x-request-id": _id(ticket)})(scope, _nothing, send)

    async def _stream(self, chat: ChatRequest, ticket: Ticket, scope: Scope, send: Send) -> None:
        progress = Progress()
        with_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        pieces = Pieces(_id(ticket), int(time.time()), ticket.model, with_usage, bool(chat.return_token_ids))
        started = False

        async def say(data: bytes, more: bool = True) -> None:
            nonlocal started
            if not started:
                # Not before there is something to say: until then a failure is a status of its own.
                started = True
                await send(_head(_id(ticket)))
                data = pieces.first() + data
            await send({"type": "http.response.body", "body": data, "more_body": more})

        try:
            async with aclosing(self._router.serving.answer(ticket, progress)) as chunks:
                async for chunk in chunks:
                    if chunk.finish_reason is FinishReason.ABORT:
                        raise InstanceLost("the answer was ended by its instance")
                    await say(pieces.piece(chunk))
            await say(pieces.end(progress), more=False)
        except RouterError as error:
            if started:
                await say(error_event(error), more=False)
            else:
                await error_response(error)(scope, _nothing, send)


def error_response(error: RouterError) -> JSONResponse:
    """OpenAI's form of an error."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(max(1, round(error.retry_after_s)))}
    return JSONResponse(error_body(error), status_of(error), headers)


async def _until_disconnected(receive: Receive, work: Awaitable[None]) -> None:
    """Do the work, but not for a client that has left."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, limit: int) -> bytes:
    content = bytearray()
    async for data in request.stream():
        content += data
        if len(content) > limit:
            raise TooLarge(f"the body has more than {limit} bytes")
    return bytes(content)


def _json(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON") from None


def _priority(request: Request, chat: ChatRequest) -> int:
    if chat.priority is not None:
        return chat.priority
    try:
        return int(request.headers.get(PRIORITY_HEADER, 0))
    except ValueError:
        raise InvalidRequest(f"{PRIORITY_HEADER} is not a number", param=PRIORITY_HEADER) from None


def _head(id: str) -> Message:
    headers = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
        (REQUEST_ID_HEADER, id.encode()),
    ]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _id(ticket: Ticket) -> str:
    return f"chatcmpl-{ticket.request.request_id}"


async def _nothing() -> Message:
    """For answers that do not listen: what the client sends is heard elsewhere."""
    raise RuntimeError("not to be called")
