"""What transformers generates, as the answer that engines are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def greedy(
    checkpoint: Path, pictured: bool, prompts: Iterable[tuple[list[int], dict[str, Any]]], tokens: int
) -> list[list[int]]:
    """Greedy answers of exactly so many tokens, computed one by one in 32 bit.

    Args:
        pictured: the model is Qwen2-VL.
        prompts: token ids, with what `generate` takes besides: nothing, or `pixel_values` and `image_grid_thw`.
    """
    import torch
    from transformers import AutoModelForCausalLM, Qwen2VLForConditionalGeneration

    family = Qwen2VLForConditionalGeneration if pictured else AutoModelForCausalLM
    model = family.from_pretrained(checkpoint, dtype=torch.float32).eval()
    answers = []
    for prompt, pictures in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
            **pictures,
        )
        answers.append(out[0, ids.size(1) :].tolist())
    return answers
