"""`pagemill serve` in a process of its own, to be killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import psutil

from tests.conftest import page_process_pids
from tests.workers.servers import wait_for
from tests.workers.service import Service

ROOT = Path(__file__).parents[3]


class Served:
    """The service of a `tests.workers.service.Service`'s stores; with workers in it where that has no broker."""

    def __init__(self, service: Service) -> None:
        settings = service.settings.model_dump(mode="json", exclude_none=True)
        settings |= {"database_url": service.settings.database(), "artifacts_url": service.settings.artifacts()}
        environment = {f"PAGEMILL_{name.upper()}": str(value) for name, value in settings.items()}
        self._log = service.folder / f"serve-{os.urandom(4).hex()}.log"
        options = ["--port", "0"] + ([] if service.settings.redis_url else ["--workers", "1"])
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "api.cli.main", "serve", *options],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )
        wait_for(self._listens, "the service listens", 60)
        match = re.search(r"http://\S+", self._log.read_text())
        assert match is not None
        self.url = match[0]

    def _listens(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        return "listens" in self._log.read_text()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def page_processes(self) -> list[int]:
        try:
            return page_process_pids(self.process.pid)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL of the service alone; its page processes must notice by themselves."""
        children = self.page_processes()
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not any(map(_runs, children)), "page processes follow the service")

    def kill_tree(self) -> None:
        victims = [psutil.Process(pid) for pid in self.page_processes()]
        self.process.kill()
        for victim in victims:
            if victim.is_running():
                victim.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
