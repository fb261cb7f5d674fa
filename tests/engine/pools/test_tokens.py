"""Tokens are those of transformers, whichever instance computed what, and nothing is held afterwards."""

from __future__ import annotations

import asyncio

import pytest

from engine.pools.messages import FinishReason
from tests.engine.pools.client import Answered, only, request
from tests.engine.pools.conftest import Pools
from tests.engine.pools.reference import Question, Reference, penalties, picture

QUESTIONS = [
    Question("What does it say?"),
    Question("Text Recognition:", (picture(112, 84, 1),)),
    Question("Which is larger?", (picture(84, 84, 2), picture(60, 150, 3))),
    Question("A longer prompt, several blocks of it. " * 8),
]


async def split(pools: Pools, what: object, transport: str | None = None, **sampling: object) -> Answered:
    """Prefill on one instance, decode on the other."""
    asked = request(what, **sampling)  # type: ignore[arg-type]
    source = (await pools.prefill.status()).address
    if transport:
        source = only(source, transport)
    return await pools.decode.decode(asked, await pools.prefill.prefill(asked), source)


@pytest.mark.parametrize("question", QUESTIONS, ids=["text", "one image", "two images", "long"])
def test_one_instance_answers_as_transformers(pools: Pools, reference: Reference, question: Question) -> None:
    found = asyncio.run(pools.decode.generate(request(question)))
    expected = reference.answer(question, 24)
    assert found.tokens == expected
    assert found.text == reference.text(expected)
    assert found.last.finish_reason is FinishReason.LENGTH
    assert found.last.usage and found.last.usage.prompt_tokens == len(reference.prompt(question)[0])


@pytest.mark.parametrize("transport", ["shared_memory", "tcp"])
@pytest.mark.parametrize("question", QUESTIONS, ids=["text", "one image", "two images", "long"])
def test_two_pools_answer_as_transformers(
    pools: Pools, reference: Reference, question: Question, transport: str
) -> None:
    found = asyncio.run(split(pools, question, transport))
    expected = reference.answer(question, 24)
    assert found.tokens == expected
    assert found.text == reference.text(expected)
    assert found.chunks[1].fallback is None
    asyncio.run(pools.hold_nothing())


def test_decode_never_runs_the_vision_encoder_for_what_it_pulls(pools: Pools) -> None:
    async def run() -> tuple[float, float, float]:
        before = (await pools.decode.status()).counters["vision_runs_total"]
        found = await split(pools, Question("Table Recognition:", (picture(140, 112, 50),)))
        after = (await pools.decode.status()).counters["vision_runs_total"]
        return before, after, found.chunks[1].pull_bytes or 0

    before, after, pulled = asyncio.run(run())
    assert after == before
    assert pulled > 0


def test_many_at_once_answer_as_transformers_under_memory_pressure(pools: Pools, reference: Reference) -> None:
    """More than fit into the KV cache together: some are pushed out and computed again, images and all."""
    questions = [
        Question(f"Number {at}: " + "words " * (20 + at), tuple(picture(112, 84, at) for _ in range(at % 3)))
        for at in range(20)
    ]

    async def run() -> list[Answered]:
        return await asyncio.gather(*(split(pools, question, tokens=40) for question in questions))

    found = asyncio.run(run())
    assert [one.tokens for one in found] == [reference.answer(question, 40) for question in questions]
    assert [one.chunks[1].fallback for one in found] == [None] * len(questions)
    asyncio.run(pools.hold_nothing())


def test_a_prompt_that_is_cut_into_chunks_answers_as_transformers(pools: Pools, reference: Reference) -> None:
    question = Question("Many words. " * 40)
    assert len(reference.prompt(question)[0]) > 256
    expected = reference.answer(question, 24)
    assert asyncio.run(pools.decode.generate(request(question))).tokens == expected
    assert asyncio.run(split(pools, question)).tokens == expected


def test_prompts_that_begin_alike_share_their_kv_and_the_rest_is_pulled(pools: Pools, reference: Reference) -> None:
    shared = "The same beginning of two prompts, longer than a block or two of the cache. "
    questions = [Question(shared + ending) for ending in ("One.", "Another.")]

    async def run() -> tuple[list[Answered], float]:
        before = (await pools.prefill.status()).counters["cached_tokens_total"]
        found = [await split(pools, question) for question in questions]
        return found, (await pools.prefill.status()).counters["cached_tokens_total"] - before

    found, cached = asyncio.run(run())
    assert [one.tokens for one in found] == [reference.answer(question, 24) for question in questions]
    assert cached >= 64
    pulled = [one.chunks[1].pull_bytes or 0 for one in found]
    assert pulled[1] < pulled[0]


def test_two_images_of_one_size_do_not_share_their_kv(pools: Pools, reference: Reference) -> None:
    """The decode side caches prefixes of prompts whose pixels it has never seen."""
    questions = [Question("Text Recognition:", (picture(112, 84, seed),)) for seed in (70, 71)]
    found = [asyncio.run(split(pools, question)) for question in questions]
    assert [one.tokens for one in found] == [reference.answer(question, 24) for question in questions]


def test_the_end_of_text_ends_the_answer(pools: Pools, reference: Reference) -> None:
    """Some of these random answers contain the token of the end."""
    prompts = [Question(f"Try number {at}") for at in range(8)]
    expected = [reference.answer(question, 60, stop=True) for question in prompts]
    assert any(len(tokens) < 60 for tokens in expected)

    async def run() -> list[Answered]:
        return await asyncio.gather(
            *(split(pools, question, tokens=60, ignore_eos=False, repetition_stop=False) for question in prompts)
        )

    for one, tokens in zip(asyncio.run(run()), expected, strict=True):
        assert one.tokens == tokens
        assert one.last.finish_reason is (FinishReason.STOP if len(tokens) < 60 else FinishReason.LENGTH)


@pytest.mark.parametrize(
    "sampling",
    [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 1}, {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2}],
    ids=str,
)
def test_penalties_are_those_of_transformers_on_both_sides_of_the_border(
    pools: Pools, reference: Reference, sampling: dict[str, float]
) -> None:
    questions = [Question(text) for text in ("aaaa aaaa", "A longer one, a longer one, a longer one", "z")]
    expected = [reference.answer(question, 40, **sampling) for question in questions]
    plain = [reference.answer(question, 40) for question in questions]
    assert expected != plain

    async def run() -> tuple[list[Answered], list[Answered]]:
        whole = [pools.decode.generate(request(question, 40, **sampling)) for question in questions]
        halves = [split(pools, question, tokens=40, **sampling) for question in questions]
        # Together, so that histories of different lengths share a batch.
        return await asyncio.gather(*whole), await asyncio.gather(*halves)  # type: ignore[return-value]

    for found in asyncio.run(run()):
        assert [one.tokens for one in found] == expected


def test_presence_and_frequency_penalties_count_the_answer_alone(pools: Pools, reference: Reference) -> None:
    question = Question("count count count")
    processors = penalties(len(reference.prompt(question)[0]), 0.8, 0.4)
    expected = reference.answer(question, 40, logits_processor=processors)
    assert expected != reference.answer(question, 40)
    sampling = {"presence_penalty": 0.8, "frequency_penalty": 0.4}
    assert asyncio.run(pools.decode.generate(request(question, 40, **sampling))).tokens == expected
    assert asyncio.run(split(pools, question, tokens=40, **sampling)).tokens == expected


def test_a_seed_gives_the_same_answer_on_one_instance_and_on_two(pools: Pools) -> None:
    question = Question("Something random")
    sampling = {"temperature": 1.5, "seed": 7}
    first = asyncio.run(pools.decode.generate(request(question, **sampling))).tokens
    assert asyncio.run(pools.decode.generate(request(question, **sampling))).tokens == first
    assert asyncio.run(split(pools, question, **sampling)).tokens == first
    assert asyncio.run(pools.decode.generate(request(question, temperature=1.5, seed=8))).tokens != first


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(pools: Pools, reference: Reference) -> None:
    question = Question("What does it say?")
    text = reference.text(reference.answer(question, 24))
    stop = next(text[at : at + 2] for at in range(4, len(text) - 2) if text[at : at + 2].isprintable())
    for found in (
        asyncio.run(pools.decode.generate(request(question, stop=(stop,)))),
        asyncio.run(split(pools, question, stop=(stop,))),
    ):
        assert found.text == text[: text.index(stop)]
        assert found.last.finish_reason is FinishReason.STOP
    asyncio.run(pools.hold_nothing())
