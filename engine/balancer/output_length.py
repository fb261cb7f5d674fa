"""How many tokens a request will generate, from what is known when it arrives; corrected by what it did generate."""

from __future__ import annotations

from collections.abc import Mapping

PRIORS: Mapping[str, float] = {"layout": 0.15, "text": 0.3, "table": 1.0, "formula": 0.6}
"""Tokens out for each token in, by task, until requests of the task have finished: a block's area says how much is in
it. From MinerU2.5's two steps on ordinary pages."""

UNKNOWN = 200.0
"""Tokens out of a task that is none of these. How long its prompt is says nothing of how long the answer will be."""


class OutputLength:
    """Mean output by task and by size of the prompt, in powers of two, weighted to the recent past.

    A size seen rarely leans on what its task as a whole generates (for tasks in PRIORS: for each token of prompt), a
    task seen rarely on its prior.
    """

    def __init__(self, memory: float = 500.0, lean: float = 8.0) -> None:
        """Args:
        memory: finished requests of a size after which one counts 1/e.
        lean: requests that the task as a whole, or the prior, is worth.
        """
        self._keep = 1.0 - 1.0 / memory
        self._lean = lean
        self._sizes: dict[tuple[str, int], tuple[float, float]] = {}
        self._tasks: dict[str, tuple[float, float]] = {}

    def predict(self, task: str, size: float) -> float:
        """Tokens for a request of `task` whose prompt has `size` tokens."""
        total, count = self._tasks.get(task, (0.0, 0.0))
        by_task = (total + self._lean * PRIORS.get(task, UNKNOWN)) / (count + self._lean)
        if task in PRIORS:
            by_task *= size
        total, count = self._sizes.get((task, int(size).bit_length()), (0.0, 0.0))
        return (total + self._lean * by_task) / (count + self._lean)

    def learn(self, task: str, size: float, output: float) -> None:
        """A request generated `output` tokens and ended by itself (not by an abort)."""
        key = (task, int(size).bit_length())
        total, count = self._sizes.get(key, (0.0, 0.0))
        self._sizes[key] = (total * self._keep + output, count * self._keep + 1.0)
        total, count = self._tasks.get(task, (0.0, 0.0))
        each = output / max(1.0, size) if task in PRIORS else output
        self._tasks[task] = (total * self._keep + each, count * self._keep + 1.0)
