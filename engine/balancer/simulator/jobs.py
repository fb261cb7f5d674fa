"""What a caller waits for: a page in two steps, or a single request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.balancer.costs import Costs


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request before it is simulated.

    Attributes:
        task: "layout", "text", "table", "formula"; or the name of a trace.
        visual, text: tokens of the prompt.
        output: tokens it will generate. The system under test does not know.
        alone_s: seconds that the request takes alone on an idle cluster.
        most: tokens that its sender lets it generate at most, which the system does know; None: as many as it likes.
    """

    task: str
    visual: int
    text: int
    output: int
    alone_s: float
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Requests that belong together. Goodput counts jobs.

    Attributes:
        at: seconds from the beginning at which it arrives.
        kind: page kind, or the name of the trace.
        first: requests sent at once: the layout request of a page, or the single request of a trace.
        then: requests sent when all of `first` are done: the crops of a page.
        zero_load_s: seconds that it takes alone on an idle cluster; see `zero_load_s`.
    """

    at: float
    kind: str
    first: tuple[RequestSpec, ...]
    then: tuple[RequestSpec, ...]
    zero_load_s: float


CROP_DELAY_S = 0.1
"""Seconds from a layout's last token until its crops are cut and sent. They are announced at once."""


def request(task: str, visual: int, text: int, output: int, costs: Costs, most: int | None = None) -> RequestSpec:
    """A request with its own zero-load path worked out."""
    return RequestSpec(task, visual, text, output, costs.zero_load_s(visual, text, output), most)


def job(at: float, kind: str, first: Sequence[RequestSpec], then: Sequence[RequestSpec], costs: Costs) -> Job:
    """A job with its own zero-load path worked out."""
    alone = zero_load_s(first, costs) + (CROP_DELAY_S + zero_load_s(then, costs) if then else 0.0)
    return Job(at, kind, tuple(first), tuple(then), alone)


def zero_load_s(requests: Sequence[RequestSpec], costs: Costs) -> float:
    """Seconds for requests sent together to one idle prefill and one idle decode instance of speed 1."""
    prefill = sum(
        costs.prefill_request_s
        + costs.visual_token_s * r.visual
        + costs.text_token_s * r.text
        + costs.attention_s * (r.visual + r.text) ** 2
        for r in requests
    )
    prompts = sum(r.visual + r.text for r in requests)
    move = costs.transfer_latency_s + prompts * costs.kv_bytes_per_token / costs.bandwidth_bytes_s
    longest = max(r.output for r in requests) - 1
    # Most of the way the longest is alone in the batch; the others end early.
    return costs.front_s + prefill + move + max(0, longest) * costs.step(1, prompts / len(requests) + longest / 2)
