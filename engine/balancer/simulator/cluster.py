"""The event loop: jobs in, an `Outcome` out, the instances' roles in the hands of a policy."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.balancer.costs import Costs
from engine.balancer.load import Load, load_of, total
from engine.balancer.manager import InstanceGone
from engine.balancer.monitor import Monitor
from engine.balancer.output_length import OutputLength
from engine.balancer.routing import PrefillQueue, choose_decode
from engine.balancer.simulator.device import Device, JobRun, Request
from engine.balancer.simulator.jobs import CROP_DELAY_S, Job, RequestSpec
from engine.balancer.simulator.outcome import Outcome, Sample
from engine.balancer.simulator.spec import ClusterSpec, Failure, Policy
from engine.balancer.state import InstanceState, Phase
from engine.role import Role

PREFILLED, JOIN, LEAVE, TICK, SWITCHED, CROPS, FAIL, RETURN, HYBRID = range(9)

SMALLEST_SHARE = 512
"""Prompt tokens below which a batch is not shared out to more idle prefill instances."""


class Cluster:
    """Simulates one run. Also is the `Instances` that a manager acts on."""

    def __init__(
        self,
        spec: ClusterSpec,
        costs: Costs,
        policy: Policy,
        prefill: int,
        duration_s: float,
        failures: Iterable[Failure] = (),
        sample_s: float = 1.0,
        hybrid: bool = False,
        may_miss: float = math.inf,
        window: int = 0,
    ) -> None:
        """Args:
        spec: the instances.
        costs: true costs of the simulated devices, which the policy knows too.
        policy: decides on roles.
        prefill: instances that begin in the prefill pool, the first ones.
        duration_s: jobs arrive before this; the run goes on until all are done.
        failures: instances that die and return.
        sample_s: seconds between two entries of the time line.
        hybrid: all instances begin as hybrids instead.
        may_miss: give up, leaving `outcome.complete` False, once more jobs than this were late.
        window: requests that are with a prefill instance at the same time, one being computed, each with its place to
            decode taken before, as our router does it. 0: batches, and places are taken after the prefill.
        """
        self.costs, self.policy, self.duration_s = costs, policy, duration_s
        self.monitor, self.lengths = Monitor(silent_after_s=math.inf), OutputLength()
        self.devices = [
            Device(
                index,
                Role.HYBRID if hybrid else Role.PREFILL if index < prefill else Role.DECODE,
                spec.prefill_speeds[index],
                spec.decode_speeds[index],
            )
            for index in range(len(spec))
        ]
        self.by_id = {device.id: device for device in self.devices}
        self.queue: PrefillQueue[Request] = PrefillQueue()
        self.pending: list[tuple[float, int, Request]] = []
        self.now = 0.0
        self._events: list[tuple[float, int, int, Any, Any]] = []
        self._order = 0
        self._jobs: Sequence[Job] = ()
        self._open = 0
        self._failures = list(failures)
        self._sample_s = sample_s
        self._sampled_at = -math.inf
        self._busy_at_sample = (0.0, 0.0)
        self.outcome = Outcome(policy.name, duration_s)
        self._may_miss = may_miss
        self._window = window
        self._idle: dict[Device, None] = {}
        self._decoders: list[Device] = []
        for device in self.devices:
            self._admit(device)

    # ---- what policies look at

    def states(self) -> tuple[InstanceState, ...]:
        """Every instance as the monitor sees it."""
        for device in self.devices:
            device.advance(self.now, self.costs)
        return tuple(device.state(self.costs) for device in self.devices)

    def waiting_decode(self) -> Load:
        """Load of what is prefilled and has no place to decode yet."""
        output = sum(entry[2].load.output for entry in self.pending)
        context = sum(entry[2].load.output_context for entry in self.pending)
        return Load(len(self.pending), 0.0, 0.0, 0.0, output, context, 0.0)

    # ---- Instances, for the manager

    def drain(self, id: str, epoch: int, target: Role) -> None:
        device = self._present(id, epoch)
        device.phase, device.target = Phase.DRAINING, target
        self._admit(device)
        self._dispatch()

    def is_drained(self, id: str, epoch: int) -> bool:
        device = self._present(id, epoch)
        prefilling = bool(device.batch or device.ahead) and device.target is Role.DECODE
        return not prefilling and (device.running == 0 or device.target is not Role.PREFILL)

    def switch(self, id: str, epoch: int, role: Role) -> None:
        device = self._present(id, epoch)
        device.phase, device.target = Phase.SWITCHING, role
        self._admit(device)
        self._push(self.now + self.costs.flip_s, SWITCHED, device, device.epoch)

    def is_switched(self, id: str, epoch: int) -> bool | None:
        device = self._present(id, epoch)
        return True if device.role is device.target else None

    def resume(self, id: str, epoch: int) -> None:
        device = self._present(id, epoch)
        device.phase, device.target = Phase.READY, device.role
        self._admit(device)
        self._dispatch()
        self._place_pending()

    def become(self, device: Device, role: Role) -> None:
        """Change role at once and without draining, as into and out of a mixed pool."""
        device.role = device.target = role
        device.changed_at = self.now
        self._admit(device)
        self._dispatch()
        self._place_pending()

    def _present(self, id: str, epoch: int) -> Device:
        device = self.by_id[id]
        if not device.alive or device.epoch != epoch:
            raise InstanceGone(id)
        return device

    # ---- the run

    def run(self, jobs: Sequence[Job]) -> Outcome:
        """Simulate until every job is done."""
        self._jobs = jobs
        self.outcome.open(jobs)
        self.policy.start(self)
        self._push(0.0, TICK, None, None)
        for failure in self._failures:
            self._push(failure.at, FAIL, self.devices[failure.instance], failure.down_s)
        handlers: dict[int, Callable[[Any, Any], None]] = {
            PREFILLED: self._prefilled,
            JOIN: self._joined,
            LEAVE: self._left,
            TICK: self._tick,
            SWITCHED: self._switched,
            CROPS: self._crops,
            FAIL: self._failed,
            RETURN: self._returned,
            HYBRID: self._hybrid_turn,
        }
        events, pop = self._events, heapq.heappop
        upcoming, count = 0, len(jobs)
        self._open = count
        outcome, may_miss = self.outcome, self._may_miss
        while self._open and outcome.late <= may_miss:
            if upcoming < count and jobs[upcoming].at <= events[0][0]:
                job = jobs[upcoming]
                self.now = job.at
                self._arrive(upcoming, job)
                upcoming += 1
            else:
                self.now, _, kind, one, other = pop(events)
                handlers[kind](one, other)
        self.outcome.close(self.now, self.devices)
        return self.outcome

    def _push(self, at: float, kind: int, one: Any, other: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, kind, one, other))

    def _arrive(self, index: int, job: Job) -> None:
        run = JobRun(index, job.at, len(job.first))
        if job.then:
            run.stage = 1
            self.monitor.expect(index)
        self._submit(run, job.first, [self._foreseen(spec) for spec in job.first])

    def _crops(self, run: JobRun, _: Any) -> None:
        self.monitor.met(run.index)
        self._submit(run, self._jobs[run.index].then, run.loads, expected=True)

    def _submit(self, run: JobRun, specs: Iterable[RequestSpec], loads: list[Load], expected: bool = False) -> None:
        now, prefill_s, push = self.now, self.costs.prefill_s, self.queue.push
        for spec, load in zip(specs, loads, strict=True):
            push(Request(spec, run, now, load.output, load, prefill_s(load)))
        self.monitor.arrived(loads, expected)
        self._dispatch()

    def _foreseen(self, spec: RequestSpec) -> Load:
        predicted = self.lengths.predict(spec.task, spec.visual + spec.text)
        if spec.most is not None:
            predicted = min(predicted, float(spec.most))
        return load_of(spec.visual, spec.text, predicted)

    def _dispatch(self) -> None:
        """Give waiting requests to idle prefill instances, a fair share of the tokens to each."""
        if self._window:
            self._dispatch_one_by_one()
            return
        queue, idle = self.queue, self._idle
        while idle and len(queue):
            share = max(SMALLEST_SHARE, queue.tokens // len(idle) + 1)
            batch = queue.pop_batch(min(self.costs.prefill_batch_tokens, share))
            self.monitor.started([r.load for r in batch])
            self._prefill(next(iter(idle)), batch)

    def _dispatch_one_by_one(self) -> None:
        """To the prefill instance with least before it, if it has room and some instance has a place to decode."""
        while len(self.queue):
            open_ = [d for d in self.devices if d.accepts_prefill and len(d.batch) + len(d.ahead) < self._window]
            if not open_:
                return
            (request,) = self.queue.pop_batch(0)
            device = min(open_, key=lambda d: sum(r.prefill_s for r in (*d.batch, *d.ahead)))
            if not self._take_place(device, request):
                self.queue.push(request)
                return
            self.monitor.started([request.load])
            if device in self._idle:
                self._prefill(device, [request])
            else:
                device.ahead.append(request)

    def _take_place(self, source: Device, request: Request) -> bool:
        chosen = self._choose(source, request)
        if chosen is None:
            return False
        chosen.running += 1
        chosen.predicted_sum += request.predicted
        request.place = chosen, chosen.epoch
        return True

    def _place_of(self, request: Request) -> Device | None:
        """The place that it took, given up by this; None if it has none, or its instance died."""
        place, request.place = request.place, None
        if place is None or place[0].epoch != place[1]:
            return None
        place[0].running -= 1
        place[0].predicted_sum -= request.predicted
        return place[0]

    def _prefill(self, device: Device, batch: list[Request]) -> None:
        device.advance(self.now, self.costs)
        device.batch = batch
        self._idle.pop(device, None)
        device.version += 1
        seconds = sum(r.prefill_s for r in batch) / device.prefill_speed
        device.busy_prefill += seconds
        self._push(self.now + seconds, PREFILLED, device, device.epoch)

    def _prefilled(self, device: Device, epoch: int) -> None:
        if epoch != device.epoch:
            return
        device.advance(self.now, self.costs)
        batch, device.batch = device.batch, []
        groups: dict[Device, list[Request]] = {}
        for request in batch:
            if math.isnan(request.first_token):
                request.first_token = self.now + self.costs.front_s
            place = self._place_of(request)
            if request.output <= 1:
                self._finish(request)
            elif not place and (self.pending or not (place := self._choose(device, request))):
                self._order += 1
                heapq.heappush(self.pending, (request.since, self._order, request))
            else:
                place.running += 1
                place.predicted_sum += request.predicted
                groups.setdefault(place, []).append(request)
        for chosen, requests in groups.items():
            self._send(device, chosen, requests)
        if device.leaving:
            # A hybrid instance owes its batch some steps before the next prefill pass.
            device.hybrid_ready = False
            early = device.phase is Phase.DRAINING
            steps = self.costs.early_decode_steps if early else self.costs.hybrid_decode_steps
            self._push(self.now + device.seconds_for(steps, self.costs), HYBRID, device, device.epoch)
            self._schedule(device)
        elif device.ahead:
            self._prefill(device, [device.ahead.pop(0)])
        elif device.accepts_prefill:
            self._idle[device] = None
        if device.phase is Phase.DRAINING and self.is_drained(device.id, device.epoch):
            self.policy.moved(self.now)
        self._dispatch()

    def _choose(self, source: Device, request: Request) -> Device | None:
        if source.accepts_decode and source.running < self.costs.max_sequences:
            return source
        return choose_decode(self._decoding(), request.tokens, request.predicted, self.costs, self._order, None)

    def _send(self, source: Device, target: Device, requests: list[Request]) -> None:
        """Move KV over the link of `source`, one transfer after the other."""
        at = self.now
        if source is not target:
            seconds = sum(r.tokens for r in requests) * self.costs.kv_bytes_per_token / self.costs.bandwidth_bytes_s
            source.link_free = max(at, source.link_free) + seconds
            at = source.link_free + self.costs.transfer_latency_s
        self._push(at, JOIN, target, (requests, target.epoch))

    def _joined(self, device: Device, arrival: tuple[list[Request], int]) -> None:
        requests, epoch = arrival
        if epoch != device.epoch:
            self._again(requests)
            return
        device.advance(self.now, self.costs)
        for request in requests:
            self._order += 1
            device.join(request, self._order, self.costs)
        self._schedule(device)

    def _schedule(self, device: Device) -> None:
        """When the next sequence will be done, if nothing changes."""
        device.version += 1
        if device.leaving and not device.batch:
            steps = device.leaving[0][0] - device.step
            at = self.now + (device.seconds_for(steps, self.costs) if steps > 0 else 0.0)
            self._order += 1
            heapq.heappush(self._events, (at, self._order, LEAVE, device, device.version))

    def _left(self, device: Device, version: int) -> None:
        if version != device.version:
            return
        device.advance(self.now, self.costs)
        learn = self.lengths.learn
        for request in device.leave():
            spec = request.spec
            learn(spec.task, request.tokens, spec.output)
            self._finish(request)
        if self.pending:
            self._place_pending()
        self._schedule(device)
        if self._window:
            self._dispatch()
        if device.phase is Phase.DRAINING and not device.running:
            self.policy.moved(self.now)

    def _place_pending(self) -> None:
        """Give prefilled requests the slots that are free. Their KV was pulled while they waited for one."""
        pending = self.pending
        touched: dict[Device, None] = {}
        while pending:
            request = pending[0][2]
            device = choose_decode(self._decoding(), request.tokens, request.predicted, self.costs, self._order, None)
            if device is None:
                break
            heapq.heappop(pending)
            if device not in touched:
                device.advance(self.now, self.costs)
                touched[device] = None
            self._order += 1
            device.running += 1
            device.predicted_sum += request.predicted
            device.join(request, self._order, self.costs)
        for device in touched:
            self._schedule(device)

    def _finish(self, request: Request) -> None:
        # What a request takes besides is put at its end: no instance is busy with it.
        request.finished = self.now + self.costs.front_s
        self.outcome.request(request)
        run = request.job
        run.open -= 1
        if run.open:
            return
        job = self._jobs[run.index]
        if run.stage == 1:
            run.stage, run.open = 2, len(job.then)
            run.loads = [self._foreseen(spec) for spec in job.then]
            self.monitor.known(run.index, total(run.loads), self.now)
            self._push(request.finished + CROP_DELAY_S, CROPS, run, None)
        else:
            self._open -= 1
            self.outcome.job(run.index, request.finished)

    def _hybrid_turn(self, device: Device, epoch: int) -> None:
        if epoch == device.epoch:
            device.hybrid_ready = True
            if device.ahead and not device.batch:
                self._prefill(device, [device.ahead.pop(0)])
            elif device.accepts_prefill and not device.batch:
                self._idle[device] = None
            self._dispatch()

    # ---- control

    def _tick(self, _: Any, __: Any) -> None:
        if self.now - self._sampled_at >= self._sample_s - 1e-9 and self.now <= self.duration_s:
            self._sample()
        self.policy.tick(self.now)
        self._push(self.now + self.policy.interval_s, TICK, None, None)

    def _sample(self) -> None:
        for device in self.devices:
            device.advance(self.now, self.costs)
        roles = [d.role if d.phase is Phase.READY and d.alive else None for d in self.devices]
        busy = (sum(d.busy_prefill for d in self.devices), sum(d.busy_decode for d in self.devices))
        seconds = max(1e-9, self.now - self._sampled_at) if math.isfinite(self._sampled_at) else math.inf
        self.outcome.samples.append(
            Sample(
                self.now,
                roles.count(Role.PREFILL),
                roles.count(Role.DECODE),
                roles.count(Role.HYBRID),
                roles.count(None),
                len(self.queue),
                len(self.pending),
                sum(d.running for d in self.devices),
                (busy[0] - self._busy_at_sample[0]) / seconds,
                (busy[1] - self._busy_at_sample[1]) / seconds,
            )
        )
        self._sampled_at, self._busy_at_sample = self.now, busy

    def _switched(self, device: Device, epoch: int) -> None:
        if epoch != device.epoch or device.phase is not Phase.SWITCHING:
            return
        device.role = device.target
        device.changed_at = self.now
        self.policy.moved(self.now)

    def _failed(self, device: Device, down_s: float) -> None:
        lost = device.lose_all()
        device.alive = False
        device.epoch += 1
        self._admit(device)
        self._push(self.now + down_s, RETURN, device, None)
        self._again(lost)
        self.policy.moved(self.now)

    def _returned(self, device: Device, _: Any) -> None:
        device.alive, device.phase, device.target = True, Phase.READY, device.role
        device.since, device.link_free, device.hybrid_ready = self.now, self.now, True
        self._admit(device)
        self._dispatch()
        self._place_pending()

    def _again(self, requests: list[Request]) -> None:
        """KV is lost: prefill once more. Greedy decoding gives the same tokens again."""
        self.outcome.retried += len(requests)
        self.monitor.returned([r.load for r in requests])
        for request in requests:
            self._place_of(request)
            self.queue.push(request)
        self._dispatch()

    def _admit(self, device: Device) -> None:
        """Its role or phase changed: what it accepts may have, too."""
        device.admit(self.costs.overlap > 0)
        if device.accepts_prefill and not device.batch and device.hybrid_ready:
            self._idle[device] = None
        else:
            self._idle.pop(device, None)
        self._decoders_known = False

    def _decoding(self) -> list[Device]:
        if not self._decoders_known:
            self._decoders = [d for d in self.devices if d.accepts_decode]
            self._decoders_known = True
        return self._decoders
