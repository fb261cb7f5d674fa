"""The engine, shown on this machine: a small model of random weights through both pools and through one instance."""

from __future__ import annotations

import asyncio
import base64
import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from engine.role import Role
from engine.router.local_stack import LocalStack
from engine.router.measure import Streamed, streamed

TOKENS = 24
INSTANCE: dict[str, Any] = {"session_len": 2048, "kv_blocks": 512, "block_size": 16, "max_batch_size": 8}


@dataclass(frozen=True, slots=True)
class Row:
    """One request, served both ways.

    Attributes:
        equal: whether both gave the same tokens.
        split_ttft_s, split_tpot_s, single_ttft_s, single_tpot_s: seconds, as the client saw them.
    """

    request: str
    tokens: int
    equal: bool
    split_ttft_s: float
    split_tpot_s: float
    single_ttft_s: float
    single_tpot_s: float


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo showed.

    Attributes:
        transport: by which KV moved; `link_bytes_per_s` as measured when the pair greeted.
        kv_bytes: moved; `fallbacks`: prompts that were computed again instead.
        blocks_left: KV blocks held at the end, on all instances together.
        failures: one sentence for each thing that is not as it should be.
    """

    rows: tuple[Row, ...]
    transport: str
    link_bytes_per_s: float
    kv_bytes: int
    fallbacks: int
    blocks_left: int
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.failures


def run_demo(say: Callable[[str], None], folder: Path | None = None) -> Demo:
    """Write a checkpoint, start both stacks, send the same requests through each, end everything.

    Args:
        say: told what happens next.
        folder: keeps checkpoint and logs; None: they go at the end.

    Raises:
        StackFailed: a process did not start.
    """
    with tempfile.TemporaryDirectory(prefix="pagemill-demo-") as scratch:
        where = folder or Path(scratch)
        say("Writing a small Qwen2-VL checkpoint of random weights.")
        model = where / "random-qwen2-vl"
        _write_checkpoint(model)
        say("Starting a router with one prefill and one decode instance, and one with a single instance.")
        with (
            LocalStack(model, [Role.PREFILL, Role.DECODE], logs=where / "logs" / "split", **INSTANCE) as split,
            LocalStack(model, [Role.HYBRID], logs=where / "logs" / "single", **INSTANCE) as single,
        ):
            split.ready()
            single.ready()
            say("Sending text and images through both.")
            by_split, by_single = (asyncio.run(_all(stack.url)) for stack in (split, single))
            left = sum(split.at_rest().values()) + sum(single.at_rest().values())
            link = split.state()["links"][0]
            metrics = split.metrics()
            return _judge(by_split, by_single, link, metrics, left)


def _write_checkpoint(folder: Path) -> None:
    """In a process of its own: this one stays without torch."""
    import subprocess
    import sys

    program = (
        "import sys; from pathlib import Path; from engine.random_checkpoint import write_checkpoint; "
        "write_checkpoint(Path(sys.argv[1]), 'qwen2-vl')"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=root, check=True, capture_output=True)


def _requests() -> dict[str, list[dict[str, Any]]]:
    """Parts of one user turn, by what it is."""

    def text(what: str) -> dict[str, Any]:
        return {"type": "text", "text": what}

    return {
        "a few words": [text("What is a KV cache?")],
        "a long prompt": [text("Pages and pages of words. " * 24)],
        "one image": [_picture((168, 112), (200, 40, 40)), text("Text Recognition:")],
        "two images": [_picture((112, 112), (0, 90, 200)), _picture((56, 168), (9, 160, 60)), text("Compare them.")],
    }


def _picture(size: tuple[int, int], color: tuple[int, int, int]) -> dict[str, Any]:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).rectangle((10, 10, size[0] // 2, size[1] - 10), fill=color)
    file = io.BytesIO()
    image.save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


async def _all(url: str) -> dict[str, Streamed]:
    """Each request once to warm up, then once for the figures, one after the other."""
    found = {}
    async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
        for round_ in range(2):
            for name, parts in _requests().items():
                # Another beginning in each round, or the second one would find its KV there already.
                content = [{"type": "text", "text": f"Round {round_}."}, *parts]
                body = {"messages": [{"role": "user", "content": content}], "max_tokens": TOKENS, "ignore_eos": True}
                found[name] = await streamed(client, url, body)
    return found


def _judge(
    split: dict[str, Streamed],
    single: dict[str, Streamed],
    link: dict[str, Any],
    metrics: dict[str, float],
    blocks_left: int,
) -> Demo:
    rows, failures = [], []
    for name, one in split.items():
        other = single[name]
        equal = one.tokens == other.tokens and len(one.tokens) == TOKENS
        if one.error or other.error:
            failures.append(f"{name}: {one.error or other.error}")
        elif not equal:
            failures.append(f"{name}: the tokens differ")
        times = (one.ttft_s, one.tpot_s, other.ttft_s, other.tpot_s)
        rows.append(Row(name, len(one.tokens), equal, *(round(seconds, 4) for seconds in times)))
    kv_bytes = int(metrics.get("pagemill_router_kv_bytes_total", 0))
    fallbacks = int(metrics.get("pagemill_router_fallbacks_total", 0))
    if not kv_bytes:
        failures.append("no KV was moved")
    if fallbacks:
        failures.append(f"{fallbacks} prompts were computed again because their KV could not be pulled")
    if blocks_left:
        failures.append(f"{blocks_left} KV blocks are still held")
    return Demo(tuple(rows), link["transport"], link["bytes_per_s"], kv_bytes, fallbacks, blocks_left, tuple(failures))
