"""Tokens a second of one engine, and of transformers, in a process of its own: `python -m bench.engine_speed JSON`.

All of it on one thread. After one line of JSON about itself, it measures each way once for every line that it reads,
and answers each with a line: so ways and processes can take turns, and whatever else the machine does hits them alike.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

AT_ONCE = 8
PAD = 257


def main(wanted: dict[str, Any]) -> None:
    """Warm up, then measure for every line of standard input, until it ends.

    Args:
        wanted: "checkpoint"; "mode", eager or graph; "tokens" for each answer; "peer", true to measure transformers
            as well.
    """
    from engine.adapters.catalogue import Mode
    from engine.adapters.start import describe, prepare

    table = prepare("cpu", wanted["mode"])
    import torch
    from lmdeploy import PytorchEngineConfig
    from lmdeploy.pytorch.engine import Engine
    from lmdeploy.utils import get_logger

    torch.set_num_threads(1)
    get_logger("lmdeploy").setLevel(logging.ERROR)
    chooser = random.Random(0)
    prompts = [[chooser.randrange(256) for _ in range(32 + 8 * number)] for number in range(AT_ONCE)]
    tokens = int(wanted["tokens"])
    ways: dict[str, Callable[[], int]] = _transformers(wanted["checkpoint"], prompts, tokens) if wanted["peer"] else {}
    config = PytorchEngineConfig(
        device_type="cpu",
        eager_mode=table.mode is Mode.EAGER,
        max_batch_size=AT_ONCE,
        block_size=16,
        num_gpu_blocks=512,
        session_len=2048,
    )
    engine = Engine(wanted["checkpoint"], config)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_start(engine))
    session = iter(range(1, 1_000_000))

    def together() -> int:
        return loop.run_until_complete(_together(engine, [(next(session), prompt) for prompt in prompts], tokens))

    ways["engine"] = together
    for way in ways.values():
        way()
    parameters = sum(each.numel() for each in _parameters(wanted["checkpoint"]))
    _say({"parameters": parameters, "graph": describe(engine, table).get("graph", "")})
    for _line in sys.stdin:
        _say({name: _timed(way) for name, way in ways.items()})
    os._exit(0)


def _timed(way: Callable[[], int]) -> dict[str, float]:
    """Tokens a second of the clock, and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    made = way()
    return {"wall": made / (time.perf_counter() - wall), "processor": made / (time.process_time() - processor)}


def _say(content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def _transformers(checkpoint: str, prompts: list[list[int]], tokens: int) -> dict[str, Callable[[], int]]:
    """`generate` one prompt after the other, and all in one padded batch."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    longest = max(map(len, prompts))
    padded = torch.tensor([[PAD] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    fixed: dict[str, Any] = {
        "max_new_tokens": tokens,
        "min_new_tokens": tokens,
        "do_sample": False,
        "pad_token_id": PAD,
    }

    def one_by_one() -> int:
        # A quarter of the prompts, first and last: each takes as long as it takes.
        few = prompts[:: AT_ONCE - 1]
        for prompt in few:
            ids = torch.tensor([prompt])
            model.generate(ids, attention_mask=torch.ones_like(ids), **fixed)
        return tokens * len(few)

    def batched() -> int:
        model.generate(padded, attention_mask=mask, **fixed)
        return tokens * len(prompts)

    return {"transformers one by one": one_by_one, "transformers batched": batched}


async def _start(engine: Any) -> None:
    engine.start_loop()


async def _together(engine: Any, asked: list[tuple[int, list[int]]], tokens: int) -> int:
    from lmdeploy.messages import GenerationConfig

    config = GenerationConfig(max_new_tokens=tokens, do_sample=False, ignore_eos=True, top_k=1)

    async def answer(session: int, prompt: list[int]) -> int:
        instance, made = engine.create_instance(), 0
        async for out in instance.async_stream_infer(session, prompt, gen_config=config):
            made += len(out.token_ids)
        await instance.async_end(session)
        return made

    return sum(await asyncio.gather(*(answer(*each) for each in asked)))


def _parameters(checkpoint: str) -> list[Any]:
    """On no device: sizes alone."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        return list(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint)).parameters())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
