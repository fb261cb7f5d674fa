"""Prompts are what transformers makes of the same conversation; pictures are opened within bounds."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image

from engine.pools import images
from engine.pools.cached_prefixes import CachedPrefixes
from engine.pools.errors import BadImage, BadRequest, PromptTooLong
from engine.pools.images import EncodedImage
from engine.pools.messages import ChatMessage, Generate, TextPart
from engine.pools.prefixes import prefix_hashes
from tests.engine.pools.reference import Question, Reference, encoded, picture

pytest.importorskip("transformers")

from engine.pools.prompt import PromptBuilder


@pytest.fixture(scope="module")
def builder(checkpoint: Path) -> PromptBuilder:
    return PromptBuilder(checkpoint)


def test_tokens_and_pixels_are_those_of_transformers(builder: PromptBuilder, reference: Reference) -> None:
    question = Question("Both, please.", (picture(90, 130, 1), picture(300, 40, 2)))
    made = builder.build(Generate(request_id="a", messages=question.messages()), 10_000)
    ids, more = reference.prompt(question)
    assert list(made.token_ids) == ids
    assert [image.grid.grid_thw for image in made.images] == [tuple(grid) for grid in more["image_grid_thw"].tolist()]
    patches = [image.pixels for image in made.images]
    assert (sum(len(one) for one in patches), patches[0].dtype) == (len(more["pixel_values"]), patches[0].dtype)
    start = 0
    for one in patches:
        assert one.equal(more["pixel_values"][start : start + len(one)])
        start += len(one)


def test_a_decode_instance_prepares_no_pixels(builder: PromptBuilder) -> None:
    question = Question("One", (picture(90, 130, 1),))
    made = builder.build(Generate(request_id="a", messages=question.messages()), 10_000, pixels=False)
    assert made.images[0].pixels is None


def test_a_prompt_that_is_too_long_says_how_long_it_may_be(builder: PromptBuilder) -> None:
    with pytest.raises(PromptTooLong, match="takes 10"):
        builder.build(Generate(request_id="a", messages=Question("much too long").messages()), 10)


def test_a_text_cannot_pass_itself_off_as_a_picture(builder: PromptBuilder) -> None:
    question = Question("<|image_pad|>", (picture(90, 130, 1),))
    with pytest.raises(BadRequest, match="stands for an image"):
        builder.build(Generate(request_id="a", messages=question.messages()), 10_000)


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 90 * 130 - 1)
    with pytest.raises(BadImage, match="90x130"):
        EncodedImage.from_base64(encoded(picture(90, 130, 1))).size()


def test_other_formats_and_broken_files_are_refused() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40)).save(buffer, "BMP")
    with pytest.raises(BadImage, match="PNG, JPEG, WEBP"):
        EncodedImage.from_base64(base64.b64encode(buffer.getvalue()).decode()).size()
    whole = base64.b64decode(encoded(picture(200, 200, 1)))
    with pytest.raises(BadImage):
        EncodedImage.from_base64(base64.b64encode(whole[: len(whole) // 2]).decode()).decode()


def test_prefixes_are_named_newest_first_and_only_as_many_as_fit() -> None:
    def talk(text: str) -> tuple[ChatMessage, ...]:
        return (
            ChatMessage(role="system", content=(TextPart(text="the same"),)),
            ChatMessage(role="user", content=(TextPart(text=text),)),
        )

    cached = CachedPrefixes(100)
    for text in ("one", "two", "three"):
        cached.add(talk(text), 40)
    roots = cached.roots()
    assert set(roots) == {*prefix_hashes(talk("two")), *prefix_hashes(talk("three"))}
    assert roots[1] == prefix_hashes(talk("three"))[-1]
