"""Streams read to their end, and what scripted instances answer."""

from __future__ import annotations

import json
from typing import Any

import httpx

from engine.pools.messages import ChatMessage, Generate, TextPart
from tests.engine.router.cluster import Cluster, body
from tests.engine.router.scripted_instance import tokens_of, words_of


def expected(text: str, count: int) -> list[int]:
    """The tokens of a right answer."""
    message = ChatMessage(role="user", content=(TextPart(text=text),))
    return tokens_of(words_of(Generate(request_id="", messages=(message,))), count)


def stream(cluster: Cluster, text: str, **fields: Any) -> tuple[list[int], str, str | None]:
    """Tokens and text of a streamed answer, and the code of the error that ended it, if one did."""
    tokens: list[int] = []
    said = ""
    url = f"{cluster.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body(text, stream=True, **fields), timeout=60) as response:
        if response.status_code != 200:
            return [], "", json.loads(response.read())["error"]["code"]
        for line in response.iter_lines():
            if line == "data: [DONE]":
                return tokens, said, None
            if line.startswith("data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    return tokens, said, event["error"]["code"]
                for choice in event["choices"]:
                    tokens += choice.get("token_ids", [])
                    said += choice["delta"].get("content", "")
    return tokens, said, "cut off"
