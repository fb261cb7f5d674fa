"""One simulated instance: its prefill pass, its decode batch in closed form, and its change of role."""

from __future__ import annotations

import heapq
import math

from engine.balancer.costs import Costs
from engine.balancer.load import Load
from engine.balancer.simulator.jobs import RequestSpec
from engine.balancer.state import InstanceState, Phase
from engine.role import Role


class Request:
    """A request on its way."""

    __slots__ = (
        "arrived",
        "finished",
        "first_token",
        "job",
        "joined_step",
        "load",
        "output",
        "place",
        "predicted",
        "prefill_s",
        "since",
        "spec",
        "tokens",
    )

    def __init__(self, spec: RequestSpec, job: JobRun, arrived: float, predicted: float, load: Load, prefill_s: float):
        self.spec, self.job = spec, job
        self.arrived, self.since = arrived, job.at
        self.tokens = spec.visual + spec.text
        self.output, self.predicted = spec.output, predicted
        self.load, self.prefill_s = load, prefill_s
        self.first_token = self.finished = math.nan
        self.joined_step = 0.0
        self.place: tuple[Device, int] | None = None


class JobRun:
    """A job on its way."""

    __slots__ = ("at", "index", "loads", "open", "stage")

    def __init__(self, index: int, at: float, open_requests: int) -> None:
        self.index, self.at, self.open, self.stage = index, at, open_requests, 0
        self.loads: list[Load] = []


class Device:
    """Decode runs in steps of the whole batch. A step costs a + b * KV + c * n, and every sequence adds one token of
    KV a step, so k steps cost k * (a + b * KV0 + c * n) + b * n * k^2 / 2: between two changes of the batch nothing
    has to be simulated. Steps are counted in `step`; a sequence that joins at step s with r tokens to go leaves at
    s + r.
    """

    __slots__ = (
        "accepts_decode",
        "accepts_prefill",
        "ahead",
        "alive",
        "batch",
        "busy_decode",
        "busy_prefill",
        "changed_at",
        "decode_speed",
        "epoch",
        "hybrid_ready",
        "id",
        "index",
        "joined_sum",
        "kv_tokens",
        "last_join",
        "last_step",
        "leaving",
        "link_free",
        "phase",
        "predicted_sum",
        "prefill_speed",
        "role",
        "running",
        "since",
        "stalled",
        "step",
        "target",
        "version",
    )

    def __init__(self, index: int, role: Role, prefill_speed: float = 1.0, decode_speed: float = 1.0) -> None:
        self.index, self.id, self.role = index, f"i{index:04d}", role
        self.prefill_speed, self.decode_speed = prefill_speed, decode_speed
        self.epoch, self.version = 0, 0
        self.phase, self.target = Phase.READY, role
        self.alive = True
        self.changed_at = -math.inf
        self.batch: list[Request] = []
        self.ahead: list[Request] = []
        self.hybrid_ready = True
        self.leaving: list[tuple[float, int, Request]] = []
        self.running = 0
        self.kv_tokens = self.step = self.since = self.link_free = 0.0
        self.predicted_sum = self.joined_sum = self.last_step = 0.0
        self.stalled, self.last_join = 0.0, -math.inf
        self.busy_prefill = self.busy_decode = 0.0
        self.admit()

    def admit(self, overlap: bool = True) -> None:
        """Derive what it accepts from phase, role and target.

        Args:
            overlap: on its way from decode to prefill it prefills while the last sequences finish.
        """
        ready, leaving = self.phase is Phase.READY, self.phase is Phase.DRAINING

        def may(other: Role) -> bool:
            begins = leaving and self.target is not other and (self.role is not other or overlap)
            return self.alive and ((ready and self.role is not other) or begins)

        self.accepts_prefill, self.accepts_decode = may(Role.DECODE), may(Role.PREFILL)

    def advance(self, now: float, costs: Costs) -> None:
        """Let the batch decode until `now`, unless a prefill pass holds it up."""
        count = len(self.leaving)
        elapsed = now - self.since
        self.since = now
        # While a hybrid instance prefills, its decode steps wait.
        if not count or elapsed <= 0 or self.batch:
            return
        joining = min(elapsed, self.stalled)
        self.stalled -= joining
        self.busy_decode += joining
        elapsed -= joining
        if elapsed <= 0:
            return
        per_token, speed = costs.step_kv_token_s, self.decode_speed
        first = (costs.step_s + per_token * self.kv_tokens + costs.step_sequence_s * count) / speed
        steps = 2 * elapsed / (first + math.sqrt(first * first + 2 * per_token * count / speed * elapsed))
        self.step += steps
        self.kv_tokens += steps * count
        self.busy_decode += elapsed

    def seconds_for(self, steps: float, costs: Costs) -> float:
        """Seconds that `steps` of the present batch take from now on."""
        count = len(self.leaving)
        per_token = costs.step_kv_token_s
        first = costs.step_s + per_token * self.kv_tokens + costs.step_sequence_s * count
        return self.stalled + steps * (first + per_token * count * steps / 2) / self.decode_speed

    def join(self, request: Request, order: int, costs: Costs) -> None:
        """Add a sequence, whose first token is there. Call `advance` first."""
        if costs.join_steps and self.leaving and self.step - self.last_join >= costs.join_steps:
            self.stalled += costs.step(1, request.tokens) / self.decode_speed
            self.last_join = self.step
        request.joined_step = self.step
        self.last_step = max(self.last_step, self.step + request.predicted)
        heapq.heappush(self.leaving, (self.step + request.output - 1, order, request))
        self.joined_sum += self.step
        self.kv_tokens += request.tokens + 1

    def leave(self) -> list[Request]:
        """Take out the sequences whose last token is there. Call `advance` first."""
        gone = []
        leaving = self.leaving
        while leaving and leaving[0][0] <= self.step + 1e-6:
            request = heapq.heappop(leaving)[2]
            gone.append(request)
            self.running -= 1
            self.kv_tokens -= request.tokens + request.output
            self.predicted_sum -= request.predicted
            self.joined_sum -= request.joined_step
        if not leaving:
            self.kv_tokens = self.joined_sum = self.stalled = 0.0
        return gone

    def lose_all(self) -> list[Request]:
        """The process died: everything in it is gone; answers what it held."""
        lost = self.batch + self.ahead + [entry[2] for entry in self.leaving]
        self.batch, self.ahead, self.leaving = [], [], []
        self.running = 0
        self.kv_tokens = self.predicted_sum = self.joined_sum = self.step = self.last_step = self.stalled = 0.0
        self.last_join = -math.inf
        self.version += 1
        return lost

    def state(self, costs: Costs) -> InstanceState:
        """As the monitor sees it, predictions for what is not known from outside."""
        count = len(self.leaving)
        left = max(0.0, self.predicted_sum - (self.step * count - self.joined_sum))
        per_step = costs.step(max(1, count), self.kv_tokens) / self.decode_speed
        remaining = left * per_step / max(1, count)
        return InstanceState(
            self.id,
            self.role,
            self.epoch,
            self.phase if self.alive else Phase.LOST,
            self.target if self.target is not self.role else None,
            self.prefill_speed,
            self.decode_speed,
            self.running,
            remaining * count / costs.max_sequences,
            max(0.0, self.last_step - self.step) * per_step if count else 0.0,
            self.kv_tokens,
            self.changed_at,
        )
