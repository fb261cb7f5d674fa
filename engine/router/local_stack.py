"""A router and instances on this machine, in processes of their own: for the demo, benches and tests."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from engine.pools.settings import InstanceSettings
from engine.pools.supervisor import Supervisor
from engine.role import Role

START_S = 180.0
END_S = 10.0
_POLL_S = 0.05


class StackFailed(Exception):
    """The stack did not come up, or not to rest, in time; the message has what is known."""


class LocalStack:
    """Started on entry, ended with all its processes on exit.

    Args:
        model: folder of the checkpoint.
        roles: one instance for each, named p0, d0, h0, ...
        router: settings of the router, by name; values as for its environment variables.
        logs: folder for what the processes print; None: one that goes with the stack.
        token: shared by router and instances; None: a new one.
        instance: settings of every instance, beyond those given here.
    """

    def __init__(
        self,
        model: Path,
        roles: Sequence[Role],
        router: Mapping[str, Any] | None = None,
        logs: Path | None = None,
        token: str | None = None,
        **instance: Any,
    ) -> None:
        self.model, self.roles = model, tuple(roles)
        self.token = token or secrets.token_hex(16)
        self.url = ""
        self._settings = dict(router or {})
        self._instance = instance
        self._logs = logs
        self._ends = ExitStack()
        self.supervisor: Supervisor | None = None
        self.router: subprocess.Popen[str] | None = None

    def __enter__(self) -> LocalStack:
        try:
            if self._logs is None:
                self._logs = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="pagemill-stack-")))
            self._start_router()
            self.supervisor = self._ends.enter_context(Supervisor(self._all_settings(), self._logs))
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def ready(self, seconds: float = START_S) -> LocalStack:
        """Wait until all instances take requests and all pairs have greeted.

        Raises:
            StackFailed: they do not; with the end of what a process printed.
        """
        pairs = self.roles.count(Role.PREFILL) * self.roles.count(Role.DECODE)

        def holds() -> bool:
            state = self.state()
            usable = sum(i["usable"] for i in state["instances"])
            return usable == len(self.roles) and sum(bool(link["transport"]) for link in state["links"]) >= pairs

        self._wait(holds, "the instances are not ready", seconds)
        return self

    def at_rest(self, seconds: float = 60.0) -> dict[str, int]:
        """Wait until nothing is under way; answers the KV blocks that each instance holds then.

        Raises:
            StackFailed: blocks are still held after `seconds`.
        """
        held: dict[str, int] = {}

        def holds() -> bool:
            state = self.state()
            held.clear()
            for status in self.statuses():
                held[status["address"]["engine_id"]] = status["total_blocks"] - status["free_blocks"]
            quiet = state["live"] == state["waiting"] == 0 and not any(i["running"] for i in state["instances"])
            return quiet and not any(held.values()) and not any(s["leases"] for s in self.statuses())

        self._wait(holds, f"blocks are still held: {held}", seconds)
        return held

    def state(self) -> dict[str, Any]:
        """What the router knows."""
        return self._get(f"{self.url}/v1/instances")

    def statuses(self) -> list[dict[str, Any]]:
        """What the instances say now."""
        return [self._get(f"{i['status']['address']['url']}/v1/instance") for i in self.state()["instances"]]

    def metrics(self) -> dict[str, float]:
        """The router's, by name with labels."""
        lines = httpx.get(f"{self.url}/metrics", trust_env=False).text.splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"}

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float = 60.0) -> Any:
        """Ask an instance directly, with the token."""
        answer = httpx.post(url, json=body, headers=self._headers(), timeout=timeout_s, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def _get(self, url: str) -> Any:
        answer = httpx.get(url, headers=self._headers(), timeout=10, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def _all_settings(self) -> list[InstanceSettings]:
        counts: dict[Role, int] = {}
        found = []
        for role in self.roles:
            number = counts[role] = counts.get(role, -1) + 1
            found.append(
                InstanceSettings(
                    model=self.model,
                    token=self.token,
                    engine_id=f"{role.value[0]}{number}",
                    epoch=0,
                    role=role,
                    router=self.url,
                    **self._instance,
                )
            )
        return found

    def _start_router(self) -> None:
        assert self._logs is not None
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._ends.enter_context((self._logs / "router.log").open("ab"))
        # Roles are what the caller says; the balancer is for those who do not say.
        given = {"token": self.token, "port": 0, "balance": "off", **self._settings}
        self.router = subprocess.Popen(
            [sys.executable, "-m", "engine.router.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._ends.callback(self._end_router)
        assert self.router.stdin and self.router.stdout
        self.router.stdin.write(json.dumps(given) + "\n")
        self.router.stdin.flush()
        self.url = self.router.stdout.readline().strip()
        if not self.url:
            raise StackFailed(f"the router did not start: {self._printed()}")

    def _end_router(self) -> None:
        assert self.router and self.router.stdin and self.router.stdout
        self.router.terminate()
        try:
            self.router.wait(END_S)
        except subprocess.TimeoutExpired:
            self.router.kill()
            self.router.wait()
        self.router.stdin.close()
        self.router.stdout.close()

    def _wait(self, holds: Any, otherwise: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        why = ""
        while time.monotonic() < deadline:
            try:
                if holds():
                    return
            except httpx.HTTPError as error:
                why = f" ({type(error).__name__})"
            time.sleep(_POLL_S)
        raise StackFailed(f"{otherwise}{why} within {seconds:.0f} s: {self._printed()}")

    def _printed(self) -> str:
        """The last lines of every process."""
        assert self._logs is not None
        ends = {}
        for path in sorted(self._logs.glob("*.log")):
            ends[path.stem] = path.read_text("utf-8", "replace").splitlines()[-5:]
        return json.dumps(ends, ensure_ascii=False)
