"""Tokens through the router and both pools, compared with transformers: `python -m bench.engine_pools JSON`.

Many requests at once, prompts cut into chunks, beginnings cached, and too few blocks for all of them. Prints one line
of JSON: how many answers were token for token those of `generate`, what moved between the pools, what had to give way,
and what is held afterwards.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from bench.engine_questions import NEW_TOKENS, Question, questions
from engine.role import Role
from engine.router.local_stack import LocalStack
from engine.router.measure import Streamed, streamed

PATIENCE_SECONDS = 240.0
BLOCKS = 160
"""Of each pool, 16 tokens each: about a sixth of what all requests together take."""
COUNTED = (
    "pulls_total",
    "fallbacks_total",
    "cached_tokens_total",
    "evicted_sequences_total",
    "evicted_blocks_total",
    "graph_steps_total",
    "graph_misses_total",
)


def main(wanted: dict[str, Any]) -> None:
    """Ask everything at once, then again: by then, beginnings are cached.

    Args:
        wanted: "checkpoint"; "pictures", whether to send any; "references", the file of `bench.engine_questions`;
            "pairs", of a prefill and a decode instance; "transport", the only one; "mode", eager or graph; "count" of
            the questions and "copies" of each.
    """
    asked = questions(wanted["count"], pictures=wanted["pictures"]) * wanted["copies"]
    expected = json.loads(Path(wanted["references"]).read_text("utf-8")) * wanted["copies"]
    pairs = wanted["pairs"]
    given: dict[str, Any] = {
        "session_len": 1024,
        "block_size": 16,
        "kv_blocks": BLOCKS // pairs,
        "max_batch_size": len(asked),
        "max_prefill_tokens": 64,
        "transports": (wanted["transport"],),
        "eager": wanted["mode"] == "eager",
    }
    roles = [Role.PREFILL] * pairs + [Role.DECODE] * pairs
    with LocalStack(Path(wanted["checkpoint"]), roles, **given) as stack:
        stack.ready()
        rounds, seconds = {}, {}
        for name in ("together", "together again"):
            began = time.perf_counter()
            rounds[name] = _round(stack.url, asked, expected)
            seconds[name] = round(time.perf_counter() - began, 1)
        held = stack.at_rest()
        statuses, metrics, links = stack.statuses(), stack.metrics(), stack.state()["links"]
    counters = {name: int(sum(status["counters"][name] for status in statuses)) for name in COUNTED}
    answer = {
        "requests": len(asked),
        "rounds": rounds,
        "seconds": seconds,
        **counters,
        "kv_bytes": int(sum(status["counters"]["pulled_bytes_total"] for status in statuses)),
        "split": int(metrics.get('pagemill_router_placed_total{mode="split"}', 0)),
        "transports": sorted({link["transport"] for link in links}),
        "modes": [status["operators"].get("graph", status["mode"]) for status in statuses],
        "held_blocks": sum(held.values()),
    }
    sys.stdout.write(json.dumps(answer) + "\n")


def _round(url: str, asked: Sequence[Question], expected: Sequence[Sequence[int]]) -> dict[str, int]:
    """How many answers are equal, other than expected, or errors by their code."""
    answers = asyncio.run(_ask(url, asked))
    pairs = zip(answers, expected, strict=True)
    ends = [answer.error or ("equal" if answer.tokens == tokens else "wrong") for answer, tokens in pairs]
    return dict(Counter(ends))


async def _ask(url: str, asked: Sequence[Question]) -> list[Streamed]:
    more = {"max_tokens": NEW_TOKENS, "ignore_eos": True, "repetition_stop": False, "timeout": PATIENCE_SECONDS}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS + 30, trust_env=False, limits=limits) as client:
        return await asyncio.gather(*(streamed(client, url, question.body() | more) for question in asked))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
