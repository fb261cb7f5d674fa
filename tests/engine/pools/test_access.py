"""An instance answers only who knows its token."""

from __future__ import annotations

import httpx
import pytest

from tests.engine.pools.conftest import Pools

CALLS = ["prefill", "decode", "generate", "release", "abort", "role", "connect"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer another"}, {"Authorization": "Basic x"}])
def test_without_the_token_nothing_is_told_and_nothing_is_done(pools: Pools, headers: dict[str, str]) -> None:
    with httpx.Client(base_url=pools.prefill.instance.url, headers=headers, trust_env=False) as http:
        answers = [http.get(path) for path in ("/v1/instance", "/metrics", "/health")]
        answers += [http.post(f"/v1/{call}", json={"request_id": "r"}) for call in CALLS]
        assert {answer.status_code for answer in answers} == {401}
        assert {answer.json()["code"] for answer in answers} == {"unauthorised"}
