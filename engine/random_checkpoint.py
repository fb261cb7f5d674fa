"""Checkpoints of random weights, in Hugging Face's format, for tests, the demo and benches. No download, no meaning.

The text is nonsense, but deterministic: the same folder gives the same tokens in LMDeploy and in transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["qwen2", "qwen2-vl"]
Size = Literal["tiny", "thin", "small"]

END_OF_TEXT, TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# As Qwen2-VL has them, and the ones in which MinerU's model writes layouts.
OTHER_SPECIALS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|ref_start|>",
    "<|ref_end|>",
    "<|rotate_up|>",
)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'text' %}{{ c['text'] }}"
    "{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model.

    Attributes:
        spread: standard deviation of the weights; large enough that greedy tokens vary, small enough that
            differences of a rounding do not change them.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    spread: float
    vision_width: int
    vision_layers: int
    vision_spread: float


SHAPES: dict[str, Shape] = {
    # 0.3 million parameters: an engine with it starts in seconds.
    "tiny": Shape(128, 256, 2, 4, 2, 0.2, 64, 2, 0.15),
    # 2 million in twelve layers: a step is many calls and little arithmetic.
    "thin": Shape(128, 256, 12, 4, 2, 0.2, 64, 2, 0.15),
    # 121 million parameters for text: the width and half the layers of Qwen2-0.5B, with a vocabulary of bytes.
    "small": Shape(896, 3072, 12, 14, 2, 0.04, 256, 4, 0.06),
}


def write_checkpoint(folder: Path, kind: Kind, size: Size = "tiny", seed: int = 0) -> None:
    """Write config, weights (float32), tokenizer with chat template and, for "qwen2-vl", the image processor.

    The tokenizer knows one token for each byte. Takes torch and transformers; "small" is 0.5 GB.

    Args:
        folder: made if it is not there; what is in it is written over.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    tokens = _write_tokenizer(folder)
    shape = SHAPES[size]
    model = _qwen2(shape, tokens) if kind == "qwen2" else _qwen2_vl(shape, tokens, folder)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                spread = shape.vision_spread if "visual" in name else shape.spread
                parameter.normal_(std=spread, generator=generator)
        # Answers are bytes and perhaps an end: a token that stands for an image would mean something in a prompt.
        model.lm_head.weight[[token for name, token in tokens.items() if name != END_OF_TURN]] = 0.0
    model.float().save_pretrained(folder)
    _name_the_architecture(folder, type(model).__name__)


def _write_tokenizer(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN, *OTHER_SPECIALS],
        chat_template=CHAT_TEMPLATE,
    )
    fast.save_pretrained(str(folder))
    names = (END_OF_TEXT, TURN, END_OF_TURN, *OTHER_SPECIALS)
    return {name: int(fast.convert_tokens_to_ids(name)) for name in names}


def _text_config(shape: Shape, tokens: dict[str, int]) -> dict[str, Any]:
    return {
        "vocab_size": 256 + len(tokens),
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": 32768,
        "bos_token_id": None,
        "eos_token_id": tokens[END_OF_TURN],
        "pad_token_id": tokens[END_OF_TEXT],
        "tie_word_embeddings": False,
    }


def _qwen2(shape: Shape, tokens: dict[str, int]) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(**_text_config(shape, tokens)))


def _qwen2_vl(shape: Shape, tokens: dict[str, int], folder: Path) -> Any:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessor

    half = shape.hidden // shape.heads // 2
    height = half * 3 // 8
    text = _text_config(shape, tokens) | {
        "rope_scaling": {"type": "mrope", "mrope_section": [half - 2 * height, height, height]},
    }
    vision = {
        "depth": shape.vision_layers,
        "embed_dim": shape.vision_width,
        "hidden_size": shape.hidden,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": 14,
        # LMDeploy computes quick_gelu as gelu; only with "gelu" do both libraries compute the same.
        "hidden_act": "gelu",
    }
    config = Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=tokens["<|image_pad|>"],
        video_token_id=tokens["<|video_pad|>"],
        vision_start_token_id=tokens["<|vision_start|>"],
        vision_end_token_id=tokens["<|vision_end|>"],
        eos_token_id=tokens[END_OF_TURN],
        tie_word_embeddings=False,
    )
    Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=28 * 28 * 64).save_pretrained(str(folder))
    return Qwen2VLForConditionalGeneration(config)


def _name_the_architecture(folder: Path, name: str) -> None:
    """LMDeploy chooses the model's code by `architectures`."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config["architectures"] = [name]
    path.write_text(json.dumps(config, indent=2), "utf-8")
