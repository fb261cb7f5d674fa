"""Images of a prompt in LMDeploy's terms, with pixels only where the vision encoder will see them.

An instance that pulls the KV of a prompt needs the places of its images for the positions of mrope, and a name of
their contents for its cache of prefixes. If its blocks are taken away later, under memory pressure, LMDeploy computes
the prompt again, images and all: then, and only then, the pixels are prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from lmdeploy.pytorch.engine.input_process import BaseModelInputProcessor
from lmdeploy.pytorch.multimodal.data_type import MultiModalData

from engine.pools.prompt import PromptImage


class VisionInputs(BaseModelInputProcessor):
    """In place of the model's own input processor, which it asks for the positions.

    Args:
        pixels: gives the pixel values of an image.
    """

    def __init__(self, inner: Any, pixels: Callable[[PromptImage], torch.Tensor]) -> None:
        self._inner = inner
        self._pixels = pixels

    def preprocess_input(self, input_ids: list[int], input_multimodals: Sequence[PromptImage], **_: Any) -> Any:
        token_id = input_ids[input_multimodals[0].grid.offset]
        result = self._inner.preprocess_input(
            input_ids,
            [
                {
                    "pixel_values": torch.zeros(0),
                    "image_grid_thw": torch.tensor([image.grid.grid_thw]),
                    "image_tokens": image.grid.tokens,
                    "image_token_id": token_id,
                    "offset": image.grid.offset,
                }
                for image in input_multimodals
            ],
        )
        (placed,) = result.input_multimodals.values()
        result.input_multimodals = {
            name: [
                _LateImage.of(data, image, self._pixels) for data, image in zip(placed, input_multimodals, strict=True)
            ]
            for name in result.input_multimodals
        }
        return result


class _LateImage(MultiModalData):
    """Becomes an ordinary one on its way to the device."""

    @classmethod
    def of(cls, data: Any, image: PromptImage, pixels: Callable[[PromptImage], torch.Tensor]) -> _LateImage:
        late = cls(
            data=data.data,
            start=data.start,
            end=data.end,
            meta=data.meta,
            modality=data.modality,
            mrope_pos_ids=data.mrope_pos_ids,
            content_hash=f"{image.source.digest}:{image.grid.grid_thw}",
        )
        late.image, late.pixels = image, pixels
        return late

    def to_device(self, device: str, non_blocking: bool = False) -> Any:
        whole = MultiModalData(
            data=self.pixels(self.image),
            start=self.start,
            end=self.end,
            meta=self.meta,
            modality=self.modality,
            mrope_pos_ids=self.mrope_pos_ids,
            content_hash=self.content_hash,
        )
        return whole.to_device(device, non_blocking)
