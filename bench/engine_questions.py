"""Questions to a vision-language model, and what transformers answers: `python -m bench.engine_questions JSON`.

The questions are made of numbers alone, so every process has the same ones. Only the answers take torch.
"""

from __future__ import annotations

import base64
import io
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.greedy import greedy

if TYPE_CHECKING:
    from PIL.Image import Image

NEW_TOKENS = 24
LENGTHS = (3, 15, 16, 17, 40, 64, 90, 130, 180, 240, 300)
"""Characters of a question's own text; in the random checkpoints each is a token."""
SIZES = ((84, 56), (112, 84), (60, 120), (168, 112))


@dataclass(frozen=True, slots=True)
class Question:
    """A user's turn: pictures, then text.

    Attributes:
        pictures: width and height in pixels, and the seed of its noise.
    """

    text: str
    pictures: tuple[tuple[int, int, int], ...] = ()

    def images(self) -> list[Image]:
        import numpy as np
        from PIL.Image import fromarray

        return [
            fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8))
            for width, height, seed in self.pictures
        ]

    def body(self) -> dict[str, Any]:
        """A chat request, without how many tokens it may have."""
        parts: list[dict[str, Any]] = []
        for image in self.images():
            buffer = io.BytesIO()
            image.save(buffer, "PNG")
            url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": self.text}]}]}


def questions(count: int, *, pictures: bool) -> list[Question]:
    """Of many lengths; every other one begins like the others that have as many pictures.

    Args:
        pictures: whether they have none, one and two pictures by turns; else none has any.
    """
    chooser = random.Random(0)
    beginning = _letters(chooser, 70)
    made = []
    for number in range(count):
        alike = number % 2 == 1
        sizes = [SIZES[(number + at) % len(SIZES)] for at in range(number % 3 if pictures else 0)]
        if alike:
            sizes = [SIZES[at] for at in range(len(sizes))]
        shown = tuple((*size, at if alike else 100 + 2 * number + at) for at, size in enumerate(sizes))
        own = _letters(chooser, LENGTHS[number % len(LENGTHS)])
        made.append(Question((beginning if alike else "") + own, shown))
    return made


def _letters(chooser: random.Random, count: int) -> str:
    return "".join(chooser.choices("abcdefghijklmnopqrstuvwxyz ,.", k=count))


def main(wanted: dict[str, Any]) -> None:
    """Write what `generate` answers to each question.

    Args:
        wanted: "checkpoint"; "count" and "pictures", as for `questions`; "path", of a JSON file with a list of
            tokens for each.
    """
    import torch
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    checkpoint = Path(wanted["checkpoint"])
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)

    def prompt(question: Question) -> tuple[list[int], dict[str, Any]]:
        placed, pixels = _pictures(checkpoint, question)
        text = f"<|im_start|>user\n{placed}{question.text}<|im_end|>\n<|im_start|>assistant\n"
        return tokenizer.encode(text), pixels

    asked = questions(wanted["count"], pictures=wanted["pictures"])
    answers = greedy(checkpoint, wanted["pictures"], map(prompt, asked), NEW_TOKENS)
    Path(wanted["path"]).write_text(json.dumps(answers), "utf-8")
    sys.stdout.write(json.dumps({"answers": len(answers)}) + "\n")


def _pictures(checkpoint: Path, question: Question) -> tuple[str, dict[str, Any]]:
    """Where they stand in the prompt, and what the model is given of them."""
    if not question.pictures:
        return "", {}
    from transformers import Qwen2VLImageProcessor

    made = Qwen2VLImageProcessor.from_pretrained(checkpoint)(images=question.images(), return_tensors="pt")
    counts = [int(grid.prod()) // 4 for grid in made["image_grid_thw"]]
    placed = "".join("<|vision_start|>" + "<|image_pad|>" * count + "<|vision_end|>" for count in counts)
    return placed, {name: made[name] for name in ("pixel_values", "image_grid_thw")}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
