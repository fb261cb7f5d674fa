"""MinerU's own http-client runs against the router, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from PIL import Image

from tests.engine.router.cluster import Cluster

mineru_vl_utils = pytest.importorskip("mineru_vl_utils")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        started.add("p0", "prefill")
        started.add("d0", "decode")
        yield started.ready()


def test_two_step_extraction_asks_and_is_answered(cluster: Cluster) -> None:
    client = mineru_vl_utils.MinerUClient(backend="http-client", server_url=cluster.url, use_tqdm=False)
    # It finds the model by itself, and sends no token limit: answers run to the end of the session.
    client.client.sampling_params = mineru_vl_utils.vlm_client.base_client.SamplingParams(max_new_tokens=12)
    client.client.allow_truncated_content = True
    assert client.layout_detect(Image.new("RGB", (200, 280), "white")) == []
    layout = cluster.instances[0].seen()["requests"][-1]
    assert layout["sampling"]["temperature"] == 0
    assert layout["sampling"]["no_repeat_ngram_size"] == 100
    assert layout["sampling"]["skip_special_tokens"] is False
    assert [sorted(part) for part in layout["messages"][-1]["content"]] == [["image"], ["text"]]


def test_many_at_once_are_answered(cluster: Cluster) -> None:
    client = mineru_vl_utils.MinerUClient(backend="http-client", server_url=cluster.url, use_tqdm=False).client
    images = [Image.new("RGB", (56, 56), (n, 0, 0)) for n in range(20)]
    prompts = [f"Text Recognition: {n} end-after:3" for n in range(20)]
    answers = asyncio.run(client.aio_batch_predict(images, prompts, priority=list(range(20))))
    assert len(set(answers)) == 20
    assert all(len(answer.split()) == 3 for answer in answers)
    cluster.nothing_held()
