"""Descriptions of instances and requests for tests that need no process."""

from __future__ import annotations

from typing import Any

from engine.balancer.load import load_of
from engine.pools.messages import (
    ChatMessage,
    Generate,
    Health,
    InstanceStatus,
    PeerAddress,
    Role,
    Sampling,
    TextPart,
)
from engine.pools.prefixes import prefix_hashes
from engine.router.ticket import Ticket


def status(id: str, role: str = "hybrid", epoch: int = 1, **fields: Any) -> InstanceStatus:
    """An instance that is ready and idle."""
    given: dict[str, Any] = {
        "address": PeerAddress(engine_id=id, epoch=epoch, url=f"http://127.0.0.1:1/{id}", interconnect=()),
        "model": "m",
        "vendor": "cpu",
        "device": "cpu",
        "mode": "eager",
        "role": Role(role),
        "phase": "ready",
        "session_len": 4096,
        "max_batch_size": 4,
        "block_size": 16,
        "kv_bytes_per_token": 100,
        "running": 0,
        "waiting": 0,
        "free_blocks": 1000,
        "total_blocks": 1000,
        "leases": 0,
        "remaining_tokens": 0,
        "health": Health(ok=True, reason="", age_s=0, seconds=0),
        "uptime_s": 1.0,
    }
    return InstanceStatus(**{**given, **fields})


def ticket(text: str = "x", tokens: int = 10, now: float = 0.0, **fields: Any) -> Ticket:
    """A request of so many prompt tokens, a second of prefill for each thousand."""
    messages = (
        ChatMessage(role="system", content=(TextPart(text="system"),)),
        ChatMessage(role="user", content=(TextPart(text=text),)),
    )
    given: dict[str, Any] = {
        "request": Generate(request_id=text, messages=messages, sampling=Sampling(max_tokens=10)),
        "model": "m",
        "visual": 0,
        "text": tokens,
        "text_bytes": 4 * tokens,
        "prefixes": prefix_hashes(messages),
        "priority": 0,
        "caller": "c",
        "arrived": now,
        "deadline": now + 60,
        "load": load_of(0, tokens, 10),
        "prefill_s": tokens / 1000,
        "output": 10.0,
    }
    return Ticket(**{**given, **fields})
