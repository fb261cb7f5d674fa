"""What clients of OpenAI's interface can rely on."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from engine.pools.messages import ChatMessage, Generate, Sampling, TextPart
from tests.engine.router.cluster import Cluster, body
from tests.engine.router.scripted_instance import text_of, tokens_of, words_of


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        started.add("p0", "prefill")
        started.add("d0", "decode")
        yield started.ready()


@pytest.fixture
def client(cluster: Cluster) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=0)


def expected(text: str, count: int) -> list[int]:
    message = ChatMessage(role="user", content=(TextPart(text=text),))
    return tokens_of(words_of(Generate(request_id="", messages=(message,), sampling=Sampling())), count)


def png(width: int = 56, height: int = 28, color: str = "red") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, "PNG")
    return file.getvalue()


def data_url(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def last_request(cluster: Cluster, instance: int = 0) -> dict[str, Any]:
    return cluster.instances[instance].seen()["requests"][-1]


def test_the_openai_package_reads_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "one two"}], temperature=0, max_tokens=5
    )
    assert answer.choices[0].message.content == text_of(expected("one two", 5))
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 5)


def test_the_openai_package_reads_a_streamed_answer(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scripted",
        messages=[{"role": "user", "content": "one two end-after:4"}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == text_of(expected("one two end-after:4", 4))
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 4


def test_the_work_is_split_and_the_kv_is_released(cluster: Cluster) -> None:
    before = cluster.metrics()
    assert cluster.chat("split this").json()["choices"][0]["token_ids"] == expected("split this", 8)
    cluster.nothing_held()
    after = cluster.metrics()
    assert after['pagemill_router_placed_total{mode="split"}'] > before.get(
        'pagemill_router_placed_total{mode="split"}', 0
    )
    assert after["pagemill_router_kv_bytes_total"] == before.get("pagemill_router_kv_bytes_total", 0) + 2000
    prefill = cluster.instances[0].seen()
    assert prefill["requests"][-1]["request_id"] in prefill["released"]


def test_an_answer_of_one_token_is_not_decoded(cluster: Cluster) -> None:
    decoded = len(cluster.instances[1].seen()["requests"])
    answer = cluster.chat("just one", max_tokens=1).json()
    assert answer["choices"][0]["token_ids"] == expected("just one", 1)
    assert len(cluster.instances[1].seen()["requests"]) == decoded
    cluster.nothing_held()


def test_everything_that_minerus_client_sends_reaches_the_engine(cluster: Cluster) -> None:
    answer = cluster.chat(
        "all of it",
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        presence_penalty=1.0,
        frequency_penalty=0.05,
        repetition_penalty=1.1,
        vllm_xargs={"no_repeat_ngram_size": 100, "debug": False},
        max_completion_tokens=7,
        max_tokens=9,
        skip_special_tokens=False,
        stop=["END", "\n\n"],
        seed=11,
    )
    assert answer.status_code == 200
    sampling = last_request(cluster)["sampling"]
    assert sampling == {
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "presence_penalty": 1.0,
        "frequency_penalty": 0.05,
        "repetition_penalty": 1.1,
        "no_repeat_ngram_size": 100,
        "repetition_stop": True,
        "stop": ["END", "\n\n"],
        "seed": 11,
        "ignore_eos": False,
        "skip_special_tokens": False,
    }


def test_the_one_most_likely_token_is_greedy(cluster: Cluster) -> None:
    cluster.chat("greedy", temperature=0.8, top_k=1, top_p=0.01)
    assert last_request(cluster)["sampling"]["temperature"] == 0


def test_images_come_as_data_urls_in_their_place(cluster: Cluster) -> None:
    content = [
        {"type": "text", "text": "before"},
        {"type": "image_url", "image_url": {"url": data_url(png())}},
        {"type": "text", "text": "after"},
    ]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": content}]
    answer = cluster.chat(messages=messages)
    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens_details"]["image_tokens"] == 1
    turns = last_request(cluster)["messages"]
    assert [turn["role"] for turn in turns] == ["system", "user"]
    assert turns[1]["content"][1] == {"image": base64.b64encode(png()).decode()}
    assert (turns[1]["content"][0], turns[1]["content"][2]) == ({"text": "before"}, {"text": "after"})


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/a.png",
        "https://example.com/a.png",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "data:image/png,plain",
        "data:image/png;base64,!!!",
    ],
)
def test_other_images_are_refused(cluster: Cluster, url: str) -> None:
    before = len(cluster.instances[0].seen()["requests"])
    answer = cluster.chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "image_refused"
    assert len(cluster.instances[0].seen()["requests"]) == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"n": 2}, "unsupported"),
        ({"tools": [{"type": "function"}]}, "unsupported"),
        ({"response_format": {"type": "json_object"}}, "unsupported"),
        ({"logprobs": True}, "unsupported"),
        ({"temperature": 7}, "invalid_request"),
        ({"max_tokens": 0}, "invalid_request"),
        ({"messages": []}, "invalid_request"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "invalid_request"),
        ({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, "invalid_request"),
    ],
)
def test_what_cannot_be_done_is_a_typed_error(cluster: Cluster, fields: dict[str, Any], code: str) -> None:
    answer = cluster.chat(**fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_that_is_no_json_is_a_typed_error(cluster: Cluster) -> None:
    answer = httpx.post(f"{cluster.url}/v1/chat/completions", content=b"[[[")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_a_model_that_is_not_there_is_a_typed_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "model_not_found"


def test_a_loop_that_was_stopped_is_an_end_that_says_so(cluster: Cluster) -> None:
    choice = cluster.chat("loop end-after:3").json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "repetition")


def test_models_are_named_without_paths(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]


def test_health_is_the_age_of_canaries(cluster: Cluster) -> None:
    answer = httpx.get(f"{cluster.url}/health")
    assert answer.status_code == 200
    assert all(0 <= i["canary_age_s"] < 5 and i["canary_ok"] for i in answer.json()["instances"])
    assert len(answer.json()["instances"]) == 2


def test_a_priority_may_come_as_a_header(cluster: Cluster) -> None:
    url = f"{cluster.url}/v1/chat/completions"
    assert httpx.post(url, json=body(), headers={"X-Pagemill-Priority": "-3"}).status_code == 200
    assert httpx.post(url, json=body(), headers={"X-Pagemill-Priority": "soon"}).status_code == 400


def test_an_error_of_the_engine_keeps_its_code(cluster: Cluster) -> None:
    cluster.instances[0].tell(fail_at="prefill", code="prompt_too_long", retryable=False)
    try:
        answer = cluster.chat("too long")
    finally:
        cluster.instances[0].tell()
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "prompt_too_long")


def test_an_error_in_the_middle_of_a_stream_is_an_event(cluster: Cluster, client: openai.OpenAI) -> None:
    cluster.instances[1].tell(fail_at="token", after=3 + cluster_tokens(cluster), retryable=False, code="broken")
    try:
        with pytest.raises(openai.APIError) as caught:
            list(
                client.chat.completions.create(
                    model="scripted",
                    messages=[{"role": "user", "content": "x"}],
                    temperature=0,
                    max_tokens=500,
                    stream=True,
                )
            )
    finally:
        cluster.instances[1].tell()
    assert json.loads(json.dumps(caught.value.body))["code"] == "broken"


def cluster_tokens(cluster: Cluster) -> int:
    """Tokens that the decode instance has generated so far."""
    return int(cluster.instances[1].seen()["generated"])
