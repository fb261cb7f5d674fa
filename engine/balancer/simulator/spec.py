"""What a run is made of besides jobs: the instances, their failures, and who decides on roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.balancer.simulator.cluster import Cluster


class Policy(Protocol):
    """Decides on roles. `start` is called once, `tick` at every control interval, `moved` when a change advanced."""

    name: str
    interval_s: float

    def start(self, cluster: Cluster) -> None: ...
    def tick(self, now: float) -> None: ...
    def moved(self, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """An instance dies at `at` and is back, with a new epoch and nothing in it, `down_s` later."""

    at: float
    instance: int
    down_s: float


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Attributes:
    prefill_speeds, decode_speeds: one entry for each instance.
    """

    prefill_speeds: tuple[float, ...]
    decode_speeds: tuple[float, ...]

    @classmethod
    def alike(cls, count: int) -> ClusterSpec:
        """`count` instances of speed 1."""
        return cls((1.0,) * count, (1.0,) * count)

    def __len__(self) -> int:
        return len(self.prefill_speeds)
