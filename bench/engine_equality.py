"""One engine in a process of its own, compared with transformers: `python -m bench.engine_equality JSON`.

Prints one line of JSON: how many answers of each round were token for token those of `generate`, and what the engine
holds afterwards.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

from bench.greedy import greedy

NEW_TOKENS = 24


def main(wanted: dict[str, Any]) -> None:
    """Answer every prompt in several rounds.

    Args:
        wanted: "checkpoint"; "mode", eager or graph; "config", of PytorchEngineConfig; "references", a file in which
            processes share what transformers generated; "copies", how often each prompt is asked at once (1);
            "vendor" of the adapter (cpu);
            "all_references", true to compute with the reference operators; "pack_all", true to put even the smallest
            weights in oneDNN's order.
    """
    from engine.adapters.catalogue import Mode
    from engine.adapters.start import describe, prepare

    vendor = wanted.get("vendor", "cpu")
    table = prepare(vendor, wanted["mode"])
    import torch
    from lmdeploy import PytorchEngineConfig
    from lmdeploy.pytorch.engine import Engine
    from lmdeploy.utils import get_logger

    torch.set_num_threads(1)
    get_logger("lmdeploy").setLevel(logging.ERROR)
    if wanted.get("all_references"):
        from engine.adapters.cpu.backend import CpuOpsBackend

        CpuOpsBackend.use(table.all_references())
    if wanted.get("pack_all"):
        from engine.adapters.cpu import linear

        linear.WORTH_PACKING = 1
    checkpoint = Path(wanted["checkpoint"])
    requests = with_images(checkpoint) if "vl" in checkpoint.name else text_only()
    expected = references(checkpoint, requests, Path(wanted["references"]))
    config = {"max_batch_size": 8, "block_size": 16, "num_gpu_blocks": 512, "session_len": 1024} | wanted["config"]
    engine = Engine(
        str(checkpoint), PytorchEngineConfig(device_type=vendor, eager_mode=table.mode is Mode.EAGER, **config)
    )
    manager = engine.scheduler.block_manager
    # Kept: the engine lets go of it when its loop ends.
    runner = engine.executor.model_agent.patched_model
    told = describe(engine, table)
    free_before = manager.get_num_free_gpu_blocks()
    copies = int(wanted.get("copies", 1))
    counts, different = asyncio.run(rounds(engine, requests * copies, expected * copies))
    answer = {
        "requests": len(requests) * copies,
        "rounds": counts,
        "different": different,
        "free_before": free_before,
        "free_after": manager.get_num_free_gpu_blocks(),
        "graph": told.get("graph", ""),
        "graph_steps": getattr(runner, "graph_steps", 0),
        "eager_decode_steps": getattr(runner, "eager_decode_steps", 0),
    }
    print(json.dumps(answer), flush=True)  # noqa: T201 - its answer
    os._exit(0)


def text_only() -> list[dict[str, Any]]:
    """Prompts of many lengths; every other one begins like the others."""
    chooser = random.Random(0)
    beginning = [chooser.randrange(256) for _ in range(48)]
    lengths = [1, 5, 15, 16, 17, 33, 64, 70, 100, 130, 190, 260]
    return [
        {"ids": (beginning if number % 2 else []) + [chooser.randrange(256) for _ in range(length)], "images": []}
        for number, length in enumerate(lengths)
    ]


def with_images(checkpoint: Path) -> list[dict[str, Any]]:
    """Prompts with no, one and two pictures."""
    import numpy as np
    from PIL import Image
    from transformers import AutoTokenizer, Qwen2VLImageProcessor

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    processor = Qwen2VLImageProcessor.from_pretrained(checkpoint)
    noise = np.random.default_rng(0)
    pad = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    made = []
    for text, sizes in (("parse", [(112, 84)]), ("none", []), ("two", [(84, 84), (60, 120)]), ("big", [(224, 200)])):
        ids = tokenizer.encode("<|im_start|>user\n")
        images = []
        for width, height in sizes:
            picture = Image.fromarray(noise.integers(0, 255, (height, width, 3), dtype=np.uint8))
            values = processor(images=[picture], return_tensors="pt")
            count = int(values["image_grid_thw"].prod()) // 4
            ids += tokenizer.encode("<|vision_start|>")
            images.append(
                {
                    "pixel_values": values["pixel_values"],
                    "image_grid_thw": values["image_grid_thw"],
                    "image_tokens": count,
                    "image_token_id": pad,
                    "offset": len(ids),
                }
            )
            ids += [pad] * count + tokenizer.encode("<|vision_end|>")
        ids += tokenizer.encode(f"{text}<|im_end|>\n<|im_start|>assistant\n")
        made.append({"ids": ids, "images": images})
    return made


def references(checkpoint: Path, requests: list[dict[str, Any]], path: Path) -> list[list[int]]:
    """What transformers generates, computed once for all processes."""
    if path.exists():
        known: list[list[int]] = json.loads(path.read_text())
        return known
    import torch

    def pictures(images: list[dict[str, Any]]) -> dict[str, Any]:
        names = ("pixel_values", "image_grid_thw") if images else ()
        return {name: torch.cat([image[name] for image in images]) for name in names}

    prompts = ((request["ids"], pictures(request["images"])) for request in requests)
    answers = greedy(checkpoint, "vl" in checkpoint.name, prompts, NEW_TOKENS)
    path.write_text(json.dumps(answers))
    return answers


async def rounds(
    engine: Any, requests: list[dict[str, Any]], expected: list[list[int]]
) -> tuple[dict[str, int], list[tuple[int, list[int]]]]:
    """One by one, then all at once, then again: by then, prefixes are cached.

    Returns:
        How many answers of each round were equal, and the others: number of the request, and tokens.
    """
    engine.start_loop()
    counts = {}
    different = []
    for number, name in enumerate(("one by one", "together", "together again")):
        calls = [answer(engine, 1 + number * 1000 + at, request) for at, request in enumerate(requests)]
        got = [await call for call in calls] if number == 0 else await asyncio.gather(*calls)
        wrong = [at for at, pair in enumerate(zip(got, expected, strict=True)) if pair[0] != pair[1]]
        counts[name] = len(got) - len(wrong)
        different += [(at, got[at]) for at in wrong]
    return counts, different


async def answer(engine: Any, session: int, request: dict[str, Any]) -> list[int]:
    from lmdeploy.messages import GenerationConfig

    config = GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=False, ignore_eos=True, top_k=1)
    instance = engine.create_instance()
    tokens: list[int] = []
    images = [dict(image) for image in request["images"]] or None
    async for out in instance.async_stream_infer(session, request["ids"], gen_config=config, multimodal=images):
        tokens += list(out.token_ids)
    await instance.async_end(session)
    return tokens


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
