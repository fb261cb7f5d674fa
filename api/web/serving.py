"""Puts the page into an application, at its root."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATIC = Path(__file__).parent / "static"

# What a browser may do on behalf of the page. Scripts and styles come from this service only, none stands in the
# page itself; pictures may also be made in memory (blob:), because an <img> cannot send an API key. With trusted
# types no script can turn text into elements except through the sanitiser.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    ]
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    # Asked for again each time, answered 304: after an upgrade no old module meets a new one.
    "Cache-Control": "no-cache",
}


def install(app: FastAPI) -> None:
    """Serve the page at `/` and its files beside it. Last, after every route: it answers for all that is left.

    Nothing of it asks for an API key: it holds no data.
    """
    app.mount("/", _WithHeaders(StaticFiles(directory=STATIC, html=True)), name="web")


class _WithHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, with_headers)
