"""A request into the tokens that the model sees: chat template, images, and where these stand.

A decode instance that pulls KV needs the positions of images, but neither their pixels nor the vision encoder.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.pools.errors import BadRequest, PromptTooLong
from engine.pools.images import EncodedImage
from engine.pools.messages import ChatMessage, Generate, ImageGrid, ImagePart, TextPart

VISION_MODELS = ("qwen2_vl", "qwen2_5_vl")
ROLES = frozenset({"system", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class PromptImage:
    """An image within a prompt.

    Attributes:
        grid: its place and size.
        source: its bytes.
        pixels: what the vision encoder takes, shape (patches, values of a patch); None until it is asked for.
    """

    grid: ImageGrid
    source: EncodedImage
    pixels: Any = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is given."""

    token_ids: tuple[int, ...]
    images: tuple[PromptImage, ...] = ()

    @property
    def image_tokens(self) -> int:
        return sum(image.grid.tokens for image in self.images)


class PromptBuilder:
    """Tokenizer, chat template and image processor of one checkpoint. Loads no weights; safe to use from any thread.

    Args:
        folder: of the checkpoint.

    Raises:
        ValueError: no tokenizer, or a kind of vision model that we do not know.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self.config = AutoConfig.from_pretrained(folder)
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._template = _chat_template(folder, self._tokenizer)
        text = self.config.get_text_config()
        self.vocabulary = int(text.vocab_size)
        self.stop_token_ids = _stop_token_ids(folder, self._tokenizer, text)
        self._lock = threading.Lock()
        self._vision = _Vision(folder, self.config, self._tokenizer) if hasattr(self.config, "vision_config") else None

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(
            self._tokenizer.decode(
                list(token_ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
            )
        )

    def build(self, request: Generate, limit: int, *, pixels: bool = True) -> Prompt:
        """The prompt of a request.

        Args:
            limit: tokens that it may have at most.
            pixels: also prepare what the vision encoder takes.

        Raises:
            BadRequest, BadImage, PromptTooLong
        """
        if request.prompt_token_ids is not None:
            prompt = Prompt(request.prompt_token_ids)
        else:
            prompt = self._from_messages(request.messages)
        prompt = self.checked(prompt, limit)
        return self.with_pixels(prompt) if pixels else prompt

    def checked(self, prompt: Prompt, limit: int) -> Prompt:
        """The same prompt, if the engine can take it. Raises BadRequest, PromptTooLong."""
        if not prompt.token_ids:
            raise BadRequest("The prompt is empty.")
        if min(prompt.token_ids) < 0 or max(prompt.token_ids) >= self.vocabulary:
            raise BadRequest(f"Token ids of this model are 0 to {self.vocabulary - 1}.")
        if len(prompt.token_ids) > limit:
            raise PromptTooLong(
                f"The prompt has {len(prompt.token_ids)} tokens; this instance takes {limit} and one to answer."
            )
        return prompt

    def with_pixels(self, prompt: Prompt) -> Prompt:
        """The same prompt, with every image prepared for the vision encoder. Raises BadImage."""
        images = tuple(replace(image, pixels=self.pixels(image)) for image in prompt.images)
        return replace(prompt, images=images)

    def pixels(self, image: PromptImage) -> Any:
        """A tensor of shape (patches, values of a patch)."""
        if image.pixels is not None:
            return image.pixels
        assert self._vision is not None
        with self._lock:
            return self._vision.pixels(image)

    def _from_messages(self, messages: Sequence[ChatMessage]) -> Prompt:
        parts = [part for message in messages for part in message.content]
        images = [EncodedImage.from_base64(part.image) for part in parts if isinstance(part, ImagePart)]
        if not parts:
            raise BadRequest("The conversation is empty.")
        if unknown := {message.role for message in messages} - ROLES:
            raise BadRequest(f"Unknown role {sorted(unknown)[0]!r}; known: {', '.join(sorted(ROLES))}.")
        if images and self._vision is None:
            raise BadRequest("This model takes no images.")
        rendered = self._tokenizer.apply_chat_template(
            [_as_template(message, flat=self._vision is None) for message in messages],
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
        )
        token_ids = self._tokenizer.encode(rendered, add_special_tokens=False)
        if self._vision is None:
            return Prompt(tuple(token_ids))
        return self._vision.place(token_ids, images)


class _Vision:
    """Images of the Qwen2-VL family: squares of 28 pixels are one token each."""

    def __init__(self, folder: Path, config: Any, tokenizer: Any) -> None:
        from transformers import AutoImageProcessor

        if config.model_type not in VISION_MODELS:
            known = ", ".join(VISION_MODELS)
            raise ValueError(f"Models of type {config.model_type!r} with images are not known; known: {known}.")
        # The fast one needs torchvision, and its pixels differ in the last bits.
        self._processor = AutoImageProcessor.from_pretrained(folder, use_fast=False)
        self._token_id = int(config.image_token_id)
        self._merged = self._processor.merge_size**2

    def place(self, token_ids: Sequence[int], images: Sequence[EncodedImage]) -> Prompt:
        """Widen the one token that stands for an image to as many as it has."""
        if token_ids.count(self._token_id) != len(images):
            raise BadRequest("A text contains the token that stands for an image.")
        widened: list[int] = []
        placed: list[PromptImage] = []
        waiting = iter(images)
        for token_id in token_ids:
            if token_id != self._token_id:
                widened.append(token_id)
                continue
            image = next(waiting)
            grid = self._grid(image)
            count = grid[0] * grid[1] * grid[2] // self._merged
            placed.append(PromptImage(ImageGrid(offset=len(widened), tokens=count, grid_thw=grid), image))
            widened.extend([self._token_id] * count)
        return Prompt(tuple(widened), tuple(placed))

    def _grid(self, image: EncodedImage) -> tuple[int, int, int]:
        """(t, h, w) in patches, from the size alone."""
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

        width, height = image.size()
        processor = self._processor
        try:
            height, width = smart_resize(
                height,
                width,
                factor=processor.patch_size * processor.merge_size,
                min_pixels=processor.size["shortest_edge"],
                max_pixels=processor.size["longest_edge"],
            )
        except ValueError as error:
            raise BadRequest(f"The image cannot be used: {error}.") from None
        return 1, height // processor.patch_size, width // processor.patch_size

    def pixels(self, image: PromptImage) -> Any:
        made = self._processor(images=[image.source.decode()], return_tensors="pt")
        grid = tuple(made["image_grid_thw"][0].tolist())
        if grid != image.grid.grid_thw:
            raise BadRequest(f"The image became {grid} patches where {image.grid.grid_thw} were expected.")
        return made["pixel_values"]


def _as_template(message: ChatMessage, *, flat: bool) -> dict[str, Any]:
    if flat:
        return {"role": message.role, "content": "".join(p.text for p in message.content if isinstance(p, TextPart))}
    content = [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}
        for part in message.content
    ]
    return {"role": message.role, "content": content}


def _chat_template(folder: Path, tokenizer: Any) -> str:
    """The tokenizer's own; older checkpoints of vision models keep it in a file of the processor's."""
    if tokenizer.chat_template:
        return str(tokenizer.chat_template)
    beside = folder / "chat_template.json"
    if beside.is_file():
        return str(json.loads(beside.read_text("utf-8"))["chat_template"])
    raise ValueError(f"{folder} has no chat template.")


def _stop_token_ids(folder: Path, tokenizer: Any, config: Any) -> tuple[int, ...]:
    """Ends of text, of the generation config where there is one, as transformers does it."""
    found: Any = config.eos_token_id
    generation = folder / "generation_config.json"
    if generation.is_file():
        found = json.loads(generation.read_text("utf-8")).get("eos_token_id", found)
    if found is None:
        found = tokenizer.eos_token_id
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list | tuple) else (int(found),)
