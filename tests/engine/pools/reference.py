"""What transformers generates, as the answer that counts."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
)

from engine.pools.messages import ChatMessage, ImagePart, TextPart


def picture(width: int, height: int, seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


@dataclass(frozen=True)
class Question:
    """A user's turn: pictures, then text."""

    text: str
    pictures: tuple[Image.Image, ...] = ()

    def messages(self) -> tuple[ChatMessage, ...]:
        parts = [*(ImagePart(image=encoded(image)) for image in self.pictures), TextPart(text=self.text)]
        return (ChatMessage(role="user", content=tuple(parts)),)


class Reference:
    """One checkpoint in transformers."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        self.images = Qwen2VLImageProcessor.from_pretrained(folder)

    def prompt(self, question: Question) -> tuple[list[int], dict[str, Any]]:
        """Token ids, and what else `generate` takes."""
        head, tail = "<|im_start|>user\n", f"{question.text}<|im_end|>\n<|im_start|>assistant\n"
        more: dict[str, Any] = {}
        if question.pictures:
            made = self.images(images=list(question.pictures), return_tensors="pt")
            more = {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}
            for grid in made["image_grid_thw"]:
                head += "<|vision_start|>" + "<|image_pad|>" * (int(grid.prod()) // 4) + "<|vision_end|>"
        return self.tokenizer.encode(head + tail), more

    def answer(
        self, question: Question | Sequence[int], tokens: int, stop: bool = False, **generation: Any
    ) -> tuple[int, ...]:
        """Greedy tokens. `stop`: end at the end of text, and leave its token out."""
        ids, more = self.prompt(question) if isinstance(question, Question) else (list(question), {})
        end = self.model.generation_config.eos_token_id
        given = torch.tensor([ids])
        with torch.no_grad():
            made = self.model.generate(
                input_ids=given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=end if stop else -1,
                **more,
                **generation,
            )
        found = tuple(made[0, len(ids) :].tolist())
        return found[:-1] if stop and found[-1] == end else found

    def margin(self, question: Question, answer: Sequence[int]) -> float:
        """How far the logit of each token of a greedy answer is above all others', at the place where it is least.

        Where it is near zero, the order in which sums are taken decides, and another token is as right.
        """
        ids, more = self.prompt(question)
        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([[*ids, *answer]]), **more).logits[0, len(ids) - 1 : -1]
        best, second = logits.topk(2).values.unbind(-1)
        return float((best - second).min())

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)


class AnswerPenalties(LogitsProcessor):
    """OpenAI's presence and frequency penalty, written down as its documentation has them."""

    def __init__(self, prompt: int, presence: float, frequency: float) -> None:
        self.prompt, self.presence, self.frequency = prompt, presence, frequency

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        for token in set(input_ids[0, self.prompt :].tolist()):
            count = int((input_ids[0, self.prompt :] == token).sum())
            scores[0, token] -= count * self.frequency + self.presence
        return scores


def penalties(prompt: int, presence: float, frequency: float) -> LogitsProcessorList:
    return LogitsProcessorList([AnswerPenalties(prompt, presence, frequency)])
