"""Measuring what instances cost: prompts, decode steps, transfers, a change of role; as samples for `balancer.fit`.

Instances are asked directly, one thing at a time, so that what is measured is theirs alone. A router is asked only who
is there. Whatever else the instances are given meanwhile spoils the figures, so a router with requests is refused.
"""

from __future__ import annotations

import asyncio
import base64
import io
import math
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from statistics import mean
from typing import Any, TypeVar

import httpx

from engine.balancer.fit import PrefillSample, Samples, StepSample, TransferSample
from engine.pools.messages import (
    ChatMessage,
    Decode,
    Generate,
    ImagePart,
    InstanceStatus,
    Prefilled,
    RoleChange,
    Sampling,
    TextPart,
)
from engine.pools.settings import JOIN_STEPS, PATIENT_STEPS
from engine.role import Role
from engine.router.errors import EngineFailed, RouterError
from engine.router.instance_client import InstanceClient
from engine.router.registry import Instance

ASK_S = 10.0
CALL_S = 600.0
SHORTEST, LONGEST = 32, 4096
"""Tokens of the prompts, where sessions are long enough."""

SHORT_PROMPT, WINDOW_STEPS = 16, 24
FEWEST_STEPS = 4
"""Steps with all sequences of a batch in it, below which a batch tells nothing."""

PIXELS, IMAGE_SIDES = 28, (4, 8, 16, 24)
"""Sides of the images, in visual tokens."""

Say = Callable[[str], None]
T = TypeVar("T")


class CalibrationFailed(Exception):
    """It could not be measured; the message says why and what to do.

    Attributes:
        code: not_reachable, busy, no_instance, or that of the instance's refusal.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: repetitions of each size.
        shortest, longest: tokens of the prompts; 0: LONGEST, or as sessions allow.
        batch: largest decode batch; 0: all slots.
    """

    rounds: int = 3
    shortest: int = SHORTEST
    longest: int = 0
    batch: int = 0


async def measure(url: str, token: str | None, effort: Effort, say: Say) -> Samples:
    """Measure one prefill and one decode instance of a router; all instances of a model are taken to be alike.

    Args:
        url: of the router.
        token: shared with its instances.
        say: told what is measured and what came out.

    Raises:
        CalibrationFailed: nobody answers, requests are under way, no instance is ready, or one refused or broke.
    """
    state = await _look(url, token)
    instances = _instances(state)
    prefill = _first(instances, Role.PREFILL, Role.HYBRID, Role.DECODE)
    decode = _first(instances, Role.DECODE, Role.HYBRID, Role.PREFILL)
    client = InstanceClient(token)
    try:
        run = _Run(client, prefill, decode, effort, say)
        samples = Samples(sizes=run.sizes())
        await run.prompts(samples)
        await run.images(samples)
        await run.steps(samples)
        await run.transfers(samples)
        speeds = [link["bytes_per_s"] for link in state["links"] if link["bytes_per_s"]]
        samples.link_bytes_s = mean(speeds) if speeds else 0.0
        if state["may_flip"] or sum(i.status.role is decode.status.role for i in instances) > 1:
            await run.flips(samples)
        else:
            say("A change of role: not measured, the router's balancer would answer with another.")
        return samples
    except RouterError as error:
        raise CalibrationFailed(getattr(error, "code", "failed"), f"An instance failed: {error}") from error
    finally:
        await client.close()


async def _look(url: str, token: str | None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with httpx.AsyncClient(headers=headers, timeout=ASK_S, trust_env=False) as http:
            answer = await http.get(f"{url.rstrip('/')}/v1/instances")
            if answer.status_code in (401, 403):
                raise CalibrationFailed("not_reachable", f"{url} answers {answer.status_code}: is the token right?")
            answer.raise_for_status()
            state: dict[str, Any] = answer.json()
            balance = (await http.get(f"{url.rstrip('/')}/v1/engine/balance")).raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise CalibrationFailed("not_reachable", f"{url} does not answer as a router: {error}") from error
    if state["live"] or state["waiting"]:
        under_way = state["live"] + state["waiting"]
        raise CalibrationFailed("busy", f"{under_way} requests are under way at {url}: calibrate while it is idle.")
    state["may_flip"] = balance["mode"] != "act"
    return state


def _instances(state: dict[str, Any]) -> list[Instance]:
    found = [
        Instance(InstanceStatus.model_validate(entry["status"]), 0.0) for entry in state["instances"] if entry["usable"]
    ]
    if not found:
        raise CalibrationFailed("no_instance", "No instance is ready: start some with `pagemill engine serve`.")
    if all(instance.status.role is Role.DECODE for instance in found):
        raise CalibrationFailed("no_instance", "No instance prefills: one must have the role prefill or hybrid.")
    if len({instance.status.model for instance in found}) > 1:
        raise CalibrationFailed(
            "no_instance", "Instances of more than one model: calibrate each behind its own router."
        )
    return found


def _first(instances: Sequence[Instance], *roles: Role) -> Instance:
    return min(instances, key=lambda instance: (roles.index(instance.status.role), instance.id))


class _Run:
    """One calibration of a prefill and a decode instance."""

    def __init__(self, client: InstanceClient, prefill: Instance, decode: Instance, effort: Effort, say: Say) -> None:
        self._client, self._prefill, self._decode = client, prefill, decode
        self._effort, self._say = effort, say
        self._rng = random.Random(0)
        status = prefill.status
        self._longest = min(effort.longest or LONGEST, status.session_len - 2 * WINDOW_STEPS, prefill.capacity_tokens)

    def sizes(self) -> dict[str, int]:
        """What the decode instance says of itself."""
        status = self._decode.status
        sizes = {
            "max_sequences": status.max_batch_size,
            "kv_capacity_tokens": self._decode.capacity_tokens,
            "kv_bytes_per_token": status.kv_bytes_per_token,
            "join_steps": JOIN_STEPS,
            "early_decode_steps": PATIENT_STEPS,
        }
        if self._prefill.status.max_prefill_tokens:
            sizes["prefill_batch_tokens"] = self._prefill.status.max_prefill_tokens
        return sizes

    async def prompts(self, samples: Samples) -> None:
        """Prompts of text, two sizes for each doubling."""
        powers = range(int(math.log2(self._effort.shortest)) * 2, 64)
        lengths = [length for power in powers if (length := round(2 ** (power / 2))) < self._longest]
        # Round by round, so that a busy minute of the machine spoils one sample of each size and not all of one.
        for number in range(-1, self._effort.rounds):
            for length in [*lengths, self._longest]:
                began = time.perf_counter()
                seconds = (await self._one_prompt(self._tokens(length))).prefill_s
                if number >= 0:
                    samples.prefills.append(PrefillSample(0, length, seconds))
                    samples.fronts.append(time.perf_counter() - began - seconds)
        self._say(f"Prompts of up to {self._longest} tokens: {_span(s.seconds for s in samples.prefills)}.")

    async def images(self, samples: Samples) -> None:
        """Prompts with an image, where the model takes any."""
        measured: list[PrefillSample] = []
        for _ in range(self._effort.rounds):
            for side in IMAGE_SIDES:
                try:
                    prefilled = await self._one_prompt(self._picture(side))
                except EngineFailed as error:
                    if measured:
                        raise
                    self._say(f"Images: not measured ({error}); visual tokens keep their ratio to text.")
                    return
                visual = sum(image.tokens for image in prefilled.images)
                text = len(prefilled.prompt_token_ids) - visual
                measured.append(PrefillSample(visual, text, prefilled.prefill_s))
        samples.prefills += measured
        self._say(f"Images of up to {max(s.visual for s in measured)} tokens: {_span(s.seconds for s in measured)}.")

    async def steps(self, samples: Samples) -> None:
        """Decode steps over the size of the batch, with little KV and with much."""
        slots = min(self._effort.batch or self._decode.status.max_batch_size, self._decode.status.max_batch_size)
        sizes = sorted(
            {1, 2, *(max(1, round(slots * share)) for share in (0.25, 0.5, 0.75, 1.0))} & set(range(slots + 1))
        )
        batches = [(count, SHORT_PROMPT) for count in sizes]
        batches += [(count, self._longest // 2) for count in sorted({1, max(1, slots // 2), slots})]
        for _ in range(max(1, self._effort.rounds - 1)):
            for count, length in batches:
                if count * (length + 4 * WINDOW_STEPS) > self._decode.capacity_tokens:
                    continue
                sample = await self._one_batch(count, length)
                if sample:
                    samples.steps.append(sample)
        self._say(f"Decode steps of 1 to {slots} sequences: {_span(s.seconds for s in samples.steps)}.")

    async def transfers(self, samples: Samples) -> None:
        """From asking a busy instance for a decode until the sequence takes part in its steps: the KV has to come, and
        the step under way to end. Needs two instances that can share a request.
        """
        if not self._is_pair():
            self._say("Transfers: not measured, no two instances share requests.")
            return
        count = max(1, self._decode.status.max_batch_size // 2)
        busy = [self._tokens(SHORT_PROMPT, self._decode.status.session_len - SHORT_PROMPT - 1) for _ in range(count)]
        times: list[float] = []
        running = [asyncio.create_task(self._times(request, times)) for request in busy]
        try:
            for number in range(-1, self._effort.rounds):
                for length in sorted({max(1, self._longest // 8), self._longest // 2, self._longest}):
                    sample = await self._one_transfer(length, times, count)
                    if number >= 0 and sample:
                        samples.transfers.append(sample)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if samples.transfers:
            most = max(s.nbytes for s in samples.transfers)
            self._say(f"KV of up to {most:,} bytes: {_span(s.seconds for s in samples.transfers)}.")

    async def flips(self, samples: Samples) -> None:
        """A change of role of the idle decode instance and back, weights in place."""
        home = self._decode.status.role
        other = Role.HYBRID if home is not Role.HYBRID else Role.DECODE
        try:
            for role in (other, home) * max(1, self._effort.rounds - 1):
                began = time.perf_counter()
                await self._become(role)
                samples.flips.append(time.perf_counter() - began)
        finally:
            await self._become(home)
        self._say(f"Changes of role: {_span(samples.flips)}.")

    async def _become(self, role: Role) -> None:
        change = RoleChange(role=role, epoch=self._decode.epoch)
        await self._client.change_role(self._decode, change, CALL_S)

    def _is_pair(self) -> bool:
        roles = (self._prefill.status.role, self._decode.status.role)
        return self._prefill is not self._decode and roles[0] is not Role.DECODE and roles[1] is not Role.PREFILL

    async def _one_prompt(self, request: Generate, keep: bool = False) -> Prefilled:
        """Compute a prompt and let its KV go, unless it is to be pulled."""
        prefilled = await self._client.prefill(self._prefill, request, CALL_S)
        if not keep:
            self._client.release(self._prefill, request.request_id)
        return prefilled

    async def _one_batch(self, count: int, length: int) -> StepSample | None:
        """Whole requests together; steps count while all of them are in the batch."""
        chunk = self._decode.status.max_prefill_tokens or LONGEST
        passes = max(1, count * length // chunk)
        # What comes first decodes between the last passes of those that come later, up to sixteen steps each.
        tokens = min(WINDOW_STEPS + 17 * min(passes - 1, 3), self._decode.status.session_len - length - 1)
        answers = await _together([self._times(self._tokens(length, tokens)) for _ in range(count)])
        begin, end = max(times[0] for times in answers), min(times[-1] for times in answers)
        within = [[at for at in times if begin - 1e-4 <= at <= end + 1e-4] for times in answers]
        if min(map(len, within)) <= FEWEST_STEPS:
            return None
        seconds = mean((times[-1] - times[0]) / (len(times) - 1) for times in within)
        made = [sum(at <= (begin + end) / 2 for at in times) for times in answers]
        return StepSample(count, float(sum(length + so_far for so_far in made)), seconds)

    async def _times(self, request: Generate, times: list[float] | None = None) -> list[float]:
        """When each token came; filled while they come."""
        now = asyncio.get_running_loop().time()
        stream = self._client.stream(self._decode, "/v1/generate", request, CALL_S, CALL_S, now + CALL_S)
        times = [] if times is None else times
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                times += [time.perf_counter()] * len(chunk.token_ids)
        return times

    async def _one_transfer(self, length: int, times: Sequence[float], count: int) -> TransferSample | None:
        """`times`: when tokens of the `count` sequences came that the instance is busy with."""
        request = self._tokens(length, 2)
        prefilled = await self._one_prompt(request, keep=True)
        try:
            began = time.perf_counter()
            order = Decode(request=request, prefilled=prefilled, source=self._prefill.address)
            now = asyncio.get_running_loop().time()
            stream = self._client.stream(self._decode, "/v1/decode", order, CALL_S, CALL_S, now + CALL_S)
            moved, pull_s, decoded = 0, 0.0, began
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    moved, pull_s = moved + (chunk.pull_bytes or 0), pull_s + (chunk.pull_s or 0.0)
                    decoded = time.perf_counter() if chunk.token_ids else decoded
            recent = [at for at in times if at >= began - 1.0]
            if not moved or len(recent) <= count:
                return None
            step = (recent[-1] - recent[0]) / (len(recent) / count - 1) if len(recent) > 2 * count else 0.0
            return TransferSample(moved, pull_s, max(pull_s, decoded - began - step))
        finally:
            self._client.release(self._prefill, request.request_id)

    def _tokens(self, length: int, tokens: int = 2) -> Generate:
        """A prompt that nobody has cached: of tokens that are single bytes in most vocabularies."""
        ids = tuple(self._rng.randrange(10, 250) for _ in range(length))
        return Generate(request_id=secrets.token_hex(12), prompt_token_ids=ids, sampling=_sampling(tokens))

    def _picture(self, side: int) -> Generate:
        from PIL import Image

        color = tuple(self._rng.randrange(256) for _ in range(3))
        file = io.BytesIO()
        Image.new("RGB", (side * PIXELS, side * PIXELS), color).save(file, "PNG")
        parts = (ImagePart(image=base64.b64encode(file.getvalue()).decode()), TextPart(text="Read."))
        messages = (ChatMessage(role="user", content=parts),)
        return Generate(request_id=secrets.token_hex(12), messages=messages, sampling=_sampling(2))


def _sampling(tokens: int) -> Sampling:
    return Sampling(max_tokens=tokens, ignore_eos=True, repetition_stop=False)


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it; if one fails, or this is cancelled, the others are ended."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _span(seconds: Iterable[float]) -> str:
    found = sorted(seconds)
    return f"{found[0] * 1e3:.3g} to {found[-1] * 1e3:.3g} ms" if found else "nothing"
