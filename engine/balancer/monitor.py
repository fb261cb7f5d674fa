"""What arrives, what waits, what is about to come. Arrivals count, not completions: under overload these lag."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from engine.balancer.load import NOTHING, Load, total
from engine.balancer.state import InstanceState, Phase, PoolState

DECAY_S = 60.0
"""Seconds after which a length counts 1/e in the histograms."""

FOLLOWED, FEWEST_FOLLOWED, FOLLOWED_S = 48, 8, 10.0
"""What arrivals bring with them is the mean over so many at most, over so many at least, and so many seconds."""


class DecayedHistogram:
    """Counts by powers of two, the recent ones weighing more."""

    def __init__(self, decay_s: float = DECAY_S) -> None:
        self._decay_s = decay_s
        self._counts = [0.0] * 32

    def add(self, value: float) -> None:
        """Count a value of at least 0; everything from 2^31 on falls into the last bin."""
        self._counts[min(31, int(value).bit_length())] += 1.0

    def decay(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if seconds > 0:
            factor = math.exp(-seconds / self._decay_s)
            self._counts = [count * factor for count in self._counts]

    def quantile(self, share: float) -> float:
        """The smallest power of two that `share` of the values stay below; NaN if there are none."""
        total = sum(self._counts)
        if total < 1e-6:
            return math.nan
        seen = 0.0
        for power, count in enumerate(self._counts):
            seen += count
            if seen >= share * total - 1e-9:
                return float(2**power)
        return float(2**31)


class Monitor:
    """Cheap counters while requests pass, a `PoolState` and the load of the last interval once a tick.

    Holds loads as requests report them, so every request must be `started` or `withdrawn` once after it `arrived`.
    Clocks are the caller's; an interval that is not longer than zero, after a clock went back, counts as empty.
    """

    def __init__(self, silent_after_s: float = 10.0) -> None:
        """Args:
        silent_after_s: an instance not heard of for so long counts as lost.
        """
        self._silent_after_s = silent_after_s
        self._arrived = [0.0] * 7
        self._interval = [0.0] * 7
        self._roots = 0
        self._followed: deque[tuple[float, Load]] = deque(maxlen=FOLLOWED)
        self._left = [0.0] * 7
        self._expected: dict[Hashable, Load] = {}
        self._coming = [0.0] * 7
        self._heard: dict[str, tuple[int, float]] = {}
        self._closed_at = math.nan
        self.prompt_lengths = DecayedHistogram()
        self.output_lengths = DecayedHistogram()
        self.attained = 1.0

    def arrived(self, loads: Sequence[Load], expected: bool = False) -> None:
        """Requests came in, with what is known or predicted of them then.

        Args:
            loads: one for each.
            expected: they follow from an earlier arrival, which was counted with what was `expect`ed of it.
        """
        _add(self._arrived if expected else self._interval, total(loads), 1.0)
        prompts, outputs = self.prompt_lengths.add, self.output_lengths.add
        for load in loads:
            prompts(load.kv_tokens)
            outputs(load.output)

    def started(self, loads: Sequence[Load]) -> None:
        """Their prefill began."""
        _add(self._left, total(loads), 1.0)

    def returned(self, loads: Sequence[Load]) -> None:
        """They wait for prefill again, because what was prefilled is lost."""
        _add(self._left, total(loads), -1.0)

    def withdrawn(self, loads: Sequence[Load]) -> None:
        """They were aborted while they waited for prefill."""
        _add(self._left, total(loads), 1.0)

    def expect(self, key: Hashable) -> None:
        """An arrival will bring more, of a kind not known yet: the crops of a page whose layout is to be read.

        They count as arriving now, by the mean of what such arrivals brought lately. When they are sent depends on
        when the layout was read, so counted by themselves they would show how busy the pools are, not what is asked
        of them.
        """
        self._roots += 1
        self._foresee(key, self._mean_follow())

    def known(self, key: Hashable, load: Load, now: float) -> None:
        """What the arrival under `key` brings: the pipeline has read the layout and tells of the crops to come."""
        self._foresee(key, load)
        self._followed.append((now, load))

    def met(self, key: Hashable) -> None:
        """What was expected under `key` arrives now, as `arrived(..., expected=True)`, or never will."""
        load = self._expected.pop(key, None)
        if load is not None:
            _add(self._coming, load, -1.0)

    def _foresee(self, key: Hashable, load: Load) -> None:
        self.met(key)
        self._expected[key] = load
        _add(self._coming, load, 1.0)

    def _mean_follow(self) -> Load:
        if not self._followed:
            return NOTHING
        return total(load for _, load in self._followed).scaled(1 / len(self._followed))

    def finished(self, in_time: bool) -> None:
        """A request ended, within its SLO or not."""
        self.attained += 0.02 * ((1.0 if in_time else 0.0) - self.attained)

    def heard(self, id: str, epoch: int, now: float) -> None:
        """An instance answered. An answer of an older epoch than the newest known is not one."""
        known = self._heard.get(id)
        if known is None or epoch >= known[0]:
            self._heard[id] = (epoch, now)

    def close(self, now: float) -> tuple[float, Load]:
        """End the interval: its length in seconds (0 the first time) and what arrived in it."""
        seconds = now - self._closed_at if math.isfinite(self._closed_at) else 0.0
        self._closed_at = now
        while len(self._followed) > FEWEST_FOLLOWED and self._followed[0][0] < now - FOLLOWED_S:
            self._followed.popleft()
        load = Load(*self._interval)
        if self._roots and self._followed:
            load = load.plus(self._mean_follow().scaled(self._roots))
        self._roots = 0
        for index, value in enumerate(self._interval):
            self._arrived[index] += value
        self._interval = [0.0] * 7
        self.prompt_lengths.decay(seconds)
        self.output_lengths.decay(seconds)
        return max(0.0, seconds), load

    def state(
        self,
        now: float,
        instances: Iterable[InstanceState],
        waiting_decode: Load = NOTHING,
        changed_at: float = -math.inf,
    ) -> PoolState:
        """What the planner is to see. Instances that fell silent, or of an outdated epoch, are marked lost."""
        waiting = [a + i - left for a, i, left in zip(self._arrived, self._interval, self._left, strict=True)]
        return PoolState(
            now,
            tuple(self._judged(instance, now) for instance in instances),
            Load(*(max(0.0, value) for value in waiting)) if waiting[0] > 0.5 else NOTHING,
            waiting_decode,
            Load(*(max(0.0, value) for value in self._coming)) if self._expected else NOTHING,
            changed_at,
        )

    def _judged(self, instance: InstanceState, now: float) -> InstanceState:
        epoch, at = self._heard.get(instance.id, (instance.epoch, now))
        if instance.phase is not Phase.LOST and (epoch > instance.epoch or now - at > self._silent_after_s):
            return replace(instance, phase=Phase.LOST)
        return instance


def _add(sums: list[float], load: Load, sign: float) -> None:
    for index, value in enumerate(load):
        sums[index] += sign * value
