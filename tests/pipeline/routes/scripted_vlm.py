"""A server that speaks OpenAI's API and MinerU's syntax, and answers from the picture that it gets.

It knows the pages of one PDF: what stands where, and what a model would read there. A picture is recognised by its
pixels, so that a wrong crop, a turned one or a wrong size gets a wrong answer. Each block and each page may misbehave.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pypdfium2
from PIL import Image

MODEL = "scripted-vlm"
_SIDE = 24


class How(StrEnum):
    """How a question is answered."""

    GOOD = "good"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    """Ends at its bound of tokens."""
    LOOPING = "looping"
    """Repeats itself until somebody closes the connection."""
    STOPPED_LOOP = "stopped loop"
    """Repeats itself, and the server stops it, as our engine does."""
    SLOW = "slow"
    """The first token comes; nothing more does before the server is closed."""
    FAILING = "failing"
    """500, every time."""
    REFUSED = "refused"
    """400: a question that this server does not take."""
    BREAKING = "breaking"
    """The connection ends in the middle of the answer, every time."""
    NOT_JSON = "not JSON"


@dataclass(frozen=True)
class Block:
    """A block of a page: its type by MinerU's names, its box in points from the top left, what a model reads there."""

    kind: str
    bbox: tuple[float, float, float, float]
    answer: str = ""
    how: How = How.GOOD


@dataclass(frozen=True)
class Page:
    """What a model sees on a page. `layout`: its raw answer where that is not what its blocks say."""

    blocks: tuple[Block, ...] = ()
    layout: str | None = None
    how: How = How.GOOD


@dataclass
class Asked:
    """A question that came."""

    kind: str
    page: int
    block: int | None
    body: dict[str, Any]
    size: tuple[int, int]
    withdrawn: threading.Event = field(default_factory=threading.Event)
    """Set when the client closed the connection before the answer was whole."""


class ScriptedVlm:
    """Use it in a `with`; `url` is then its address.

    Args:
        pdf: whose pages it knows.
        pages: what is on them, one for each.
        busy: as many questions are first refused with 429 and 503 in turn; -1 for all.
        token: demanded as a bearer token.
        streams: False answers whole, as a server without streams does.
    """

    def __init__(
        self, pdf: Path, pages: Sequence[Page], *, busy: int = 0, token: str | None = None, streams: bool = True
    ) -> None:
        self.pages, self.busy, self.token, self.streams = list(pages), busy, token, streams
        self.asked: list[Asked] = []
        self.came = threading.Condition()
        self.healthy = True
        self.under_way = self.most_under_way = self.refused = 0
        self.closing = threading.Event()
        self._known = list(_fingerprints(pdf, pages))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.scripted = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ScriptedVlm:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def kinds(self) -> list[str]:
        """What was asked for, in the order in which it came."""
        return [asked.kind for asked in self.asked]

    def wait_for(self, count: int, seconds: float = 20) -> None:
        """Until so many questions have come."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.asked) >= count, seconds), f"{len(self.asked)} of {count} came"

    def recognise(self, picture: Image.Image, layout: bool) -> tuple[int, int | None]:
        """The page, and for a crop the block, that a picture shows."""
        wanted = _fingerprint(picture)
        candidates = [known for known in self._known if (known.block is None) == layout]
        best = min(candidates, key=lambda known: float(np.abs(known.pixels - wanted).mean()))
        return best.page, best.block

    def answer_of(self, page: int, block: int | None) -> tuple[str, How]:
        """What is answered about a block, or about a page's layout."""
        seen = self.pages[page]
        if block is None:
            return seen.layout if seen.layout is not None else _layout(seen), seen.how
        return seen.blocks[block].answer, seen.blocks[block].how


@dataclass(frozen=True)
class _Known:
    page: int
    block: int | None
    pixels: Any


def _fingerprints(pdf: Path, pages: Sequence[Page]) -> Iterator[_Known]:
    document = pypdfium2.PdfDocument(pdf)
    for number, page in enumerate(pages):
        image = document[number].render(scale=200 / 72).to_pil().convert("RGB")
        yield _Known(number, None, _fingerprint(image))
        for index, block in enumerate(page.blocks):
            crop = image.crop(tuple(round(v * 200 / 72) for v in block.bbox))  # type: ignore[arg-type]
            yield _Known(number, index, _fingerprint(crop))
    document.close()


def _fingerprint(picture: Image.Image) -> Any:
    small = picture.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32)


def _layout(page: Page) -> str:
    lines = []
    for block in page.blocks:
        x0, y0, x1, y1 = block.bbox
        unit = (x0 / 595.28, y0 / 841.89, x1 / 595.28, y1 / 841.89)
        numbers = " ".join(f"{round(1000 * v):03d}" for v in unit)
        lines.append(f"<|box_start|>{numbers}<|box_end|><|ref_start|>{block.kind}<|ref_end|><|rotate_up|>")
    return "\n".join(lines)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def scripted(self) -> ScriptedVlm:
        return self.server.scripted  # type: ignore[attr-defined,no-any-return]

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if not self._may_enter():
            return
        if self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif self.path == "/health":
            well = self.scripted.healthy
            instances = [{"engine_id": name, "usable": well, "canary_age_s": 1.0} for name in ("p0", "d0")]
            self._json(200 if well else 503, {"ok": well, "reason": "", "instances": instances})
        else:
            self._json(404, {"error": {"message": "no such thing"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may_enter():
            return
        with self.scripted.came:
            refuse, self.scripted.busy = self.scripted.busy, max(-1, self.scripted.busy - (self.scripted.busy > 0))
            self.scripted.came.notify_all()
        if refuse:
            self.close_connection = True
            self._json((429, 503)[refuse % 2], {"error": {"message": "queue full"}}, {"Retry-After": "0.05"})
            return
        asked = self._asked(body)
        with self.scripted.came:
            self.scripted.asked.append(asked)
            self.scripted.under_way += 1
            self.scripted.most_under_way = max(self.scripted.most_under_way, self.scripted.under_way)
            self.scripted.came.notify_all()
        try:
            self._answer(asked)
        except (BrokenPipeError, ConnectionResetError):
            asked.withdrawn.set()
            self.close_connection = True
        finally:
            with self.scripted.came:
                self.scripted.under_way -= 1
                self.scripted.came.notify_all()

    def _may_enter(self) -> bool:
        token = self.scripted.token
        if token is None or self.headers.get("Authorization") == f"Bearer {token}":
            return True
        self.scripted.refused += 1
        self._json(401, {"error": {"message": "who are you"}})
        return False

    def _asked(self, body: dict[str, Any]) -> Asked:
        picture, text = body["messages"][-1]["content"]
        data = picture["image_url"]["url"].removeprefix("data:image/png;base64,")
        image = Image.open(io.BytesIO(base64.b64decode(data)))
        kind = text["text"].strip()
        page, block = self.scripted.recognise(image, layout=kind == "Layout Detection:")
        return Asked(kind, page, block, body, image.size)

    def _answer(self, asked: Asked) -> None:
        text, how = self.scripted.answer_of(asked.page, asked.block)
        if how is How.FAILING:
            self._json(500, {"error": {"message": "out of luck"}})
        elif how is How.REFUSED:
            self._json(400, {"error": {"message": "not such a picture"}})
        elif how is How.NOT_JSON:
            self._send(200, b"<html>busy being a web page</html>", "application/json")
        elif not asked.body.get("stream") or not self.scripted.streams:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self._json(200, {"object": "chat.completion", "choices": [choice]})
        else:
            self._stream(asked, text, how)

    def _stream(self, asked: Asked, text: str, how: How) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        finish = "stop"
        if how is How.EMPTY:
            text = ""
        elif how is How.TRUNCATED:
            text, finish = text[: len(text) // 2], "length"
        elif how is How.BREAKING:
            self._chunk(text[: len(text) // 2])
            return
        elif how is How.SLOW:
            self._chunk(text[:1])
            self._until_withdrawn()
            return
        elif how in (How.LOOPING, How.STOPPED_LOOP):
            loop = "and so on and "
            for _ in range(8 if how is How.STOPPED_LOOP else 20_000):
                self._chunk(loop)
        if how not in (How.LOOPING, How.STOPPED_LOOP):
            for start in range(0, len(text), 40):
                self._chunk(text[start : start + 40])
        stop = {"stop_reason": "repetition"} if how is How.STOPPED_LOOP else {}
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish, **stop}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _until_withdrawn(self) -> None:
        """Comments until the other side has gone."""
        while not self.scripted.closing.wait(0.05):
            self.wfile.write(b": still here\n\n")
            self.wfile.flush()

    def _chunk(self, text: str) -> None:
        self._event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", headers)

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
