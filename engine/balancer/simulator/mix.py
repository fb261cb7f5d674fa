"""Documents by page kinds: how their pages become requests, and how the mix of kinds changes over time.

A mix is written as phases, separated by commas: `KINDS/SECONDS[@LOAD[>LOAD]]`.

- KINDS: a page kind, or several with weights: `prose`, `prose=3+tables=1`.
- `A>B/SECONDS`: a ramp from mix A to mix B. `A~B/SECONDS`: there and back along a sine, as over a day.
- LOAD: pages arriving, as a share of what the best split for the mix of that moment carries (default 0.85);
  `0.3>1.2` ramps it. A spike is a short phase: `prose/60,prose/5@2,prose/60`.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.balancer.costs import Costs
from engine.balancer.load import Load, load_of, total
from engine.balancer.simulator.jobs import Job, RequestSpec, job, request

LAYOUT_VISUAL = 1369
"""Visual tokens of a layout request: 1036 x 1036 pixels, 28 x 28 each."""

PROMPT_TEXT = 40
"""Text tokens of chat template and instruction (assumed)."""

PAGE_VISUAL = 1654 * 2339 / 784
"""Visual tokens of a whole A4 page at 200 dpi."""

LARGEST_CROP = 2048
LAYOUT_TOKENS_PER_BLOCK = 20
DEFAULT_LOAD = 0.85
SAMPLED_PAGES = 400


@dataclass(frozen=True, slots=True)
class Blocks:
    """Some blocks of a page.

    Attributes:
        task: what is asked of each.
        count: mean number of them.
        output: mean tokens of each.
        share: their share of the area of all blocks together.
    """

    task: str
    count: int
    output: float
    share: float


@dataclass(frozen=True, slots=True)
class PageKind:
    """A kind of page: its blocks, and the share of the page that they cover."""

    coverage: float
    blocks: tuple[Blocks, ...]


PAGE_KINDS: Mapping[str, PageKind] = {
    "prose": PageKind(0.60, (Blocks("text", 14, 70, 1.0),)),
    "paper": PageKind(0.62, (Blocks("text", 18, 45, 0.75), Blocks("formula", 8, 60, 0.25))),
    "tables": PageKind(0.70, (Blocks("table", 2, 1500, 0.85), Blocks("text", 3, 40, 0.15))),
    "form": PageKind(0.75, (Blocks("table", 1, 2600, 0.92), Blocks("text", 2, 30, 0.08))),
    "slide": PageKind(0.45, (Blocks("text", 7, 25, 1.0),)),
}
"""After MinerU2.5's two steps on pages of each kind; decode work per page differs tenfold, prefill hardly."""

Weights = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class MixPhase:
    """One phase of a mix. `shape` is "steady", "ramp" or "sine"; see the module."""

    before: Weights
    after: Weights
    shape: str
    seconds: float
    load_before: float
    load_after: float


@dataclass(frozen=True, slots=True)
class Mix:
    """Phases one after the other."""

    phases: tuple[MixPhase, ...]

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    @property
    def shifts(self) -> tuple[float, ...]:
        """Seconds at which a phase other than the first begins."""
        begins, at = [], 0.0
        for phase in self.phases[:-1]:
            at += phase.seconds
            begins.append(at)
        return tuple(begins)

    def at(self, seconds: float) -> tuple[dict[str, float], float]:
        """Weights of the page kinds, adding up to 1, and the load at a moment."""
        for phase in self.phases:
            if seconds < phase.seconds:
                break
            seconds -= phase.seconds
        done = min(1.0, seconds / phase.seconds)
        if phase.shape == "steady":
            share = 0.0
        else:
            share = done if phase.shape == "ramp" else (1 - math.cos(2 * math.pi * done)) / 2
        weights: dict[str, float] = {}
        for side, part in ((phase.before, 1 - share), (phase.after, share)):
            for kind, weight in side:
                weights[kind] = weights.get(kind, 0.0) + weight * part
        return weights, phase.load_before + (phase.load_after - phase.load_before) * done


def parse_mix(text: str) -> Mix:
    """Read a mix as the module describes it.

    Raises:
        ValueError: with the part that is wrong.
    """
    phases = []
    for part in text.replace(" ", "").split(","):
        found = re.fullmatch(r"([a-z=+.0-9]+)(?:([>~])([a-z=+.0-9]+))?/([0-9.]+)(?:@([0-9.]+)(?:>([0-9.]+))?)?", part)
        if not found:
            raise ValueError(f"{part!r} is not a phase: write KINDS/SECONDS, as in prose/60,tables/60@0.9")
        before, shape, after, seconds, load, load_after = found.groups()
        first = float(load) if load else DEFAULT_LOAD
        if float(seconds) <= 0:
            raise ValueError(f"{part!r} lasts no time")
        phases.append(
            MixPhase(
                _weights(before),
                _weights(after or before),
                {None: "steady", ">": "ramp", "~": "sine"}[shape],
                float(seconds),
                first,
                float(load_after) if load_after else first,
            )
        )
    return Mix(tuple(phases))


def pages(mix: Mix, instances: int, costs: Costs, seed: int, burstiness: float = 1.0) -> list[Job]:
    """Pages of `mix` as jobs, in order of arrival; open loop.

    Args:
        mix: what comes when.
        instances: of speed 1, that loads are shares of.
        costs: for loads and zero-load paths.
        seed: the same seed gives the same pages, whatever the policy.
        burstiness: squared coefficient of variation of the gaps: 1 is Poisson, more comes in bursts (gamma gaps).
    """
    rng = random.Random(seed)
    means = {kind: mean_page(kind) for kind in PAGE_KINDS}
    rates: dict[tuple[tuple[str, float], ...], float] = {}
    jobs: list[Job] = []
    at = 0.0
    while True:
        weights, load = mix.at(at)
        key = tuple((kind, round(weight, 2)) for kind, weight in sorted(weights.items()))
        if key not in rates:
            mean = total(means[kind].scaled(weight) for kind, weight in key)
            rates[key] = capacity(mean, instances, costs)
        rate = max(1e-6, load * rates[key])
        # Unit gaps through a rate that changes: fine as long as it changes little within one gap.
        at += rng.gammavariate(1 / burstiness, burstiness) / rate
        if at >= mix.seconds:
            return jobs
        kind = rng.choices(list(weights), list(weights.values()))[0]
        layout, crops = page(kind, rng, costs)
        jobs.append(job(at, kind, (layout,), crops, costs))


def page(kind: str, rng: random.Random, costs: Costs) -> tuple[RequestSpec, tuple[RequestSpec, ...]]:
    """One page of a kind: its layout request and its crops."""
    of = PAGE_KINDS[kind]
    crops = []
    area = PAGE_VISUAL * of.coverage * rng.uniform(0.85, 1.15)
    for blocks in of.blocks:
        count = max(1, round(blocks.count * rng.uniform(0.7, 1.3)))
        for _ in range(count):
            size = rng.lognormvariate(-0.08, 0.4)
            visual = area * blocks.share / count * size
            # What is larger holds more, but not exactly.
            output = blocks.output * size * rng.lognormvariate(-0.02, 0.2)
            crops.append(
                request(
                    blocks.task,
                    round(min(LARGEST_CROP, max(1, visual))),
                    PROMPT_TEXT,
                    max(2, round(output)),
                    costs,
                )
            )
    layout = request("layout", LAYOUT_VISUAL, PROMPT_TEXT, LAYOUT_TOKENS_PER_BLOCK * len(crops) + 5, costs)
    return layout, tuple(crops)


def mean_page(kind: str) -> Load:
    """Mean load of a page of a kind, from a fixed sample of pages."""
    costs = Costs()
    rng = random.Random(f"mean {kind}")
    loads = []
    for _ in range(SAMPLED_PAGES):
        layout, crops = page(kind, rng, costs)
        loads += [load_of(spec.visual, spec.text, spec.output) for spec in (layout, *crops)]
    return total(loads).scaled(1 / SAMPLED_PAGES)


def capacity(mean: Load, instances: int, costs: Costs) -> float:
    """Jobs of this mean load a second that the best split carries, queues and waits apart."""
    prefill, decode = costs.prefill_s(mean), costs.decode_s(mean)
    return max(min(n / prefill, (instances - n) / max(1e-12, decode)) for n in range(1, instances))


def _weights(text: str) -> Weights:
    pairs = []
    for part in text.split("+"):
        kind, _, weight = part.partition("=")
        if kind not in PAGE_KINDS:
            raise ValueError(f"{kind!r} is not a page kind: {', '.join(PAGE_KINDS)}")
        pairs.append((kind, float(weight or 1)))
    together = sum(weight for _, weight in pairs)
    if together <= 0:
        raise ValueError(f"{text!r} weighs nothing")
    return tuple((kind, weight / together) for kind, weight in pairs)
