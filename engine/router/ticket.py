"""One request as the router handles it: the words for the instances, and what is known of its size."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.balancer.load import Load
from engine.pools.messages import Generate


@dataclass(eq=False, slots=True)
class Ticket:
    """A request from its arrival to its end.

    Attributes:
        request: as it goes to an instance; its id is this request's.
        model: as users call it.
        visual, text: tokens of the prompt, estimated; `tokens` both, at least one.
        text_bytes: of the prompt, as UTF-8.
        prefixes: of its prompt, shortest first.
        priority: steps that it comes earlier (negative) or later; as vLLM's: the least first.
        caller: whose it is, for fairness.
        arrived: on the loop's clock; `deadline` too.
        since: when its waiting counts from, for the queue.
        load: in the balancer's currency.
        prefill_s, output: predicted seconds of prefill, and tokens to generate.
        attempt: how often it was tried before.
        avoid: incarnations that failed it.
    """

    request: Generate
    model: str
    visual: int
    text: int
    text_bytes: int
    prefixes: tuple[str, ...]
    priority: int
    caller: str
    arrived: float
    deadline: float
    since: float = 0.0
    load: Load = field(default_factory=Load)
    prefill_s: float = 0.0
    output: float = 0.0
    attempt: int = 0
    avoid: set[tuple[str, int]] = field(default_factory=set)
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = max(1, self.visual + self.text)

    @property
    def greedy(self) -> bool:
        """Whether the same request gives the same answer again."""
        return self.request.sampling.temperature == 0

    def left(self, now: float) -> float:
        """Seconds until its deadline, a little at least so that it can be waited for."""
        return max(0.001, self.deadline - now)
