"""The parts of the router, wired together, and the little that goes on between requests."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from pathlib import Path

from engine.balancer.costs import Costs
from engine.pools.messages import Generate, InstanceStatus, Sampling
from engine.pools.prefixes import prefix_hashes
from engine.router.admission import Admission
from engine.router.balance import Balance
from engine.router.errors import ModelNotFound, NoInstance, RouterError
from engine.router.estimate import Estimate, visual_tokens
from engine.router.gauges import gauges
from engine.router.instance_client import InstanceClient
from engine.router.links import Links
from engine.router.metrics import Metrics
from engine.router.openai.chat_request import Prompt
from engine.router.placement import Placer
from engine.router.registry import Instance, Registry, model_name
from engine.router.roles import RoleChanges
from engine.router.serving import Serving
from engine.router.settings import RouterSettings
from engine.router.ticket import Ticket

TICK_S = 0.25


class Router:
    """One router. Begin with `start`, on the loop that it is to run on; end with `stop`."""

    def __init__(self, settings: RouterSettings, costs: Costs | None = None) -> None:
        self.settings = settings
        if costs is None:
            costs = Costs.load(Path(settings.costs)) if settings.costs else Costs()
        self.client = InstanceClient(settings.token)
        self.registry = Registry(settings.lease_s, self._changed)
        self.links = Links(self.registry, self.client, settings.min_bandwidth_bytes_s, self._changed)
        self.placer = Placer(self.registry, self.links, costs, settings.prefill_window_tokens)
        self.estimate = Estimate(costs)
        self.roles = RoleChanges(self.registry, self.client, self._changed)
        self.balance = Balance(
            self.registry,
            self.links,
            self.estimate,
            self.roles,
            settings.balance,
            settings.lease_s,
            settings.balance_hybrids,
        )
        self.admission = Admission(
            settings.queue_limit,
            settings.instance_wait_s,
            self.placer.place,
            lambda model, now: bool(self.placer.usable(model, now)),
            self.balance,
        )
        self.metrics = Metrics(lambda: gauges(self))
        self.serving = Serving(
            settings, self.admission, self.placer, self.client, self.links, self.estimate, self.metrics
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to renew what has to be renewed."""
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self.balance.run())]
        self._tasks += [asyncio.create_task(self._poll(url.rstrip("/"))) for url in self.settings.instances]

    async def stop(self) -> None:
        """Let go of the instances. What is still being served must have been ended before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.roles.close()
        await self.links.close()
        await self.client.close()

    def heard(self, status: InstanceStatus) -> float:
        """An instance described itself. Answers the seconds after which it must do so again.

        Raises:
            StaleEpoch: a newer incarnation of it is known.
        """
        self.registry.heard(status)
        return self.settings.lease_s

    def model(self, asked: str | None) -> str:
        """The name of the model that a request is for; the only one there is where it names none.

        Raises:
            ModelNotFound: no instance serves it.
            NoInstance: there are no instances at all.
        """
        models = self.registry.models()
        if asked and model_name(asked) in models:
            return model_name(asked)
        if not models:
            raise NoInstance("no instance is registered", 5.0)
        if asked or len(models) > 1:
            raise ModelNotFound(
                f"{asked or 'no model'} is not served here; there is: {', '.join(models)}", param="model"
            )
        return models[0]

    def session_len(self, model: str) -> int:
        """Tokens that prompt and answer may have together, with the instances as they are."""
        return max((i.status.session_len for i in self._of(model)), default=1024)

    def ticket(
        self,
        model: str,
        prompt: Prompt,
        sampling: Sampling,
        timeout_s: float | None,
        priority: int,
        caller: str,
        prompt_token_ids: tuple[int, ...] | None = None,
    ) -> Ticket:
        """A request that has arrived now."""
        now = asyncio.get_running_loop().time()
        seconds = min(timeout_s or self.settings.request_timeout_s, self.settings.request_timeout_s)
        visual = sum(visual_tokens(image.width, image.height) for image in prompt.images)
        text = len(prompt_token_ids) if prompt_token_ids else self.estimate.text_tokens(prompt.text_bytes)
        ticket = Ticket(
            request=Generate(
                request_id=secrets.token_hex(12),
                messages=prompt.messages,
                prompt_token_ids=prompt_token_ids,
                sampling=sampling,
            ),
            model=model,
            visual=visual,
            text=text,
            text_bytes=prompt.text_bytes,
            prefixes=prefix_hashes(prompt.messages),
            priority=priority,
            caller=caller,
            arrived=now,
            deadline=now + seconds,
        )
        ticket.output = self.estimate.output(ticket.tokens, sampling.max_tokens)
        ticket.load = self.estimate.load(visual, text, ticket.output)
        ticket.prefill_s = self.estimate.prefill_s(ticket.load)
        self.links.traffic.add(ticket.tokens * self._kv_bytes_per_token(model), now)
        return ticket

    def is_serving(self) -> bool:
        """Whether requests would be served now: some instance is ready and its canary answers right."""
        now = asyncio.get_running_loop().time()
        return any(instance.usable(now) for instance in self.registry)

    def _kv_bytes_per_token(self, model: str) -> int:
        return max((i.status.kv_bytes_per_token for i in self._of(model)), default=0)

    def _of(self, model: str) -> list[Instance]:
        return [instance for instance in self.registry if model_name(instance.status.model) == model]

    def _changed(self) -> None:
        """Somebody came, went or became usable."""
        self.links.update()
        self.admission.pump()

    async def _tick(self) -> None:
        while True:
            self.registry.expire()
            self.links.update()
            self.admission.tick()
            await asyncio.sleep(TICK_S)

    async def _poll(self, url: str) -> None:
        """For an instance that was named by the operator: ask, where others tell."""
        while True:
            with contextlib.suppress(RouterError):
                self.registry.heard(await self.client.status(url, self.settings.lease_s / 3))
            await asyncio.sleep(self.settings.lease_s / 5)
