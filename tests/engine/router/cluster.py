"""A router process and scripted instances for tests: started, told what to do, killed, waited for."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.engine.router.nursery import nursery

PATIENCE_S = 30.0


def wait_until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    """What `holds` answers once that is true; fails with `what` if it never is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


class Scripted:
    """One scripted instance."""

    def __init__(self, id: str, role: str, router: str, epoch: int = 1, **options: Any) -> None:
        self.id, self.role, self.epoch = id, role, epoch
        self._router, self._options = router, options
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if name != "fault"]
        fault = json.dumps(options.get("fault", {}))
        named = [f"--id={id}", f"--role={role}", f"--router={router}", f"--epoch={epoch}", f"--fault={fault}"]
        self.child = nursery().start("instance", named + flags)
        self.url = self.child.url

    def is_running(self) -> bool:
        return self.child.is_running()

    def kill(self) -> None:
        self.child.signal(signal.SIGKILL)
        wait_until(lambda: not self.is_running(), f"{self.id} is gone")

    def tell(self, **fault: Any) -> None:
        """How to behave from now on; nothing: well."""
        httpx.post(f"{self.url}/test/fault", json=fault).raise_for_status()

    def seen(self) -> dict[str, Any]:
        """What it was asked, and what it holds."""
        answer: dict[str, Any] = httpx.get(f"{self.url}/test/seen").json()
        return answer

    def again(self) -> Scripted:
        """A new incarnation of it, after a kill."""
        return Scripted(self.id, self.role, self._router, self.epoch + 1, **self._options)


class Cluster:
    """A router and its instances; a context manager."""

    def __init__(self, **settings: Any) -> None:
        self.token = settings.get("token", "")
        self.router = nursery().start("router", {"balance": "off", **settings})
        self.url = self.router.url
        self.instances: list[Scripted] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for child in [*(instance.child for instance in self.instances), self.router]:
            child.signal(signal.SIGKILL)

    def add(self, id: str, role: str, **options: Any) -> Scripted:
        """Start an instance that registers itself."""
        if self.token:
            options.setdefault("token", self.token)
        instance = Scripted(id, role, self.url, **options)
        self.instances.append(instance)
        return instance

    def replace(self, instance: Scripted) -> Scripted:
        """Start a killed one again."""
        new = instance.again()
        self.instances[self.instances.index(instance)] = new
        return new

    def state(self) -> dict[str, Any]:
        """What the router knows."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer: dict[str, Any] = httpx.get(f"{self.url}/v1/instances", headers=headers).raise_for_status().json()
        return answer

    def ready(self, links: int | None = None) -> Cluster:
        """Wait until all instances that run are usable, and their pairs have greeted."""
        running = [i for i in self.instances if i.is_running()]
        if links is None:
            roles = [i.role for i in running]
            links = roles.count("prefill") * roles.count("decode")
        expected = {(i.id, i.epoch) for i in running}

        def holds() -> bool:
            state = self.state()
            usable = {
                (i["status"]["address"]["engine_id"], i["status"]["address"]["epoch"])
                for i in state["instances"]
                if i["usable"]
            }
            return usable >= expected and sum(bool(link["transport"]) for link in state["links"]) >= links

        wait_until(holds, f"{len(expected)} instances and {links} links")
        return self

    def chat(self, text: str = "hello", timeout_s: float = 60, **fields: Any) -> httpx.Response:
        """One request, greedy unless said otherwise."""
        return httpx.post(f"{self.url}/v1/chat/completions", json=body(text, **fields), timeout=timeout_s)

    def metrics(self) -> dict[str, float]:
        """Values by name with labels."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"}

    def nothing_held(self) -> None:
        """Wait until no instance holds a block or a lease, and the router has nothing under way."""

        def holds() -> bool:
            state = self.state()
            empty = all(
                i["prefills"] == i["running"] == i["waiting_pull"] == 0 and abs(i["kv_tokens"]) < 1e-6
                for i in state["instances"]
            )
            live = [i for i in self.instances if i.is_running()]
            return (
                empty
                and state["waiting"] == state["live"] == 0
                and not any(seen["held"] or seen["leases"] or seen["running"] for seen in map(Scripted.seen, live))
            )

        wait_until(holds, "nothing is held")


def body(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """A request's body."""
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "temperature": 0, "max_tokens": 8, "return_token_ids": True, **fields}
