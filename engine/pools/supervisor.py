"""Instances as child processes: started, restarted with back-off when they die, and ended with their supervisor."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from engine.pools.serve import listen, settings_to_json
from engine.pools.settings import InstanceSettings

log = logging.getLogger(__name__)

_ROOT = str(Path(__file__).parents[2])
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
STEADY_SECONDS = 60.0
"""An instance that has lived so long begins its pauses anew."""
END_SECONDS = 10.0
_POLL_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class Supervised:
    """One instance over its incarnations.

    Attributes:
        settings: of the incarnation that runs, with its epoch and port.
        restarts: how often it has been started again.
        ended_with: exit status of the incarnation before; negative: the signal that killed it.
    """

    settings: InstanceSettings
    log_path: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    ended_with: int | None = None
    _pause: float = FIRST_PAUSE
    _started: float = 0.0
    _due: float = field(default_factory=time.monotonic)

    @property
    def url(self) -> str:
        host = self.settings.advertise or self.settings.host
        return f"http://[{host}]:{self.settings.port}" if ":" in host else f"http://{host}:{self.settings.port}"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """Runs instances, each in a process group of its own.

    When the supervisor ends, however it ends, so do they: each holds one end of a pipe whose other end closes with
    the supervisor. A dead instance is started again on the same port, with a larger epoch, after a pause that
    doubles from half a second to half a minute.

    Args:
        instances: settings of each; where the port is 0, a free one is found and kept.
        logs: folder for what they print, one file each; None discards it.
    """

    def __init__(self, instances: Sequence[InstanceSettings], logs: Path | None = None) -> None:
        self.instances = [
            Supervised(_with_port(settings), logs / f"{settings.engine_id}.log" if logs else None)
            for settings in instances
        ]
        if logs:
            logs.mkdir(parents=True, exist_ok=True)
        self._lifeline_read, self._lifeline = os.pipe()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self) -> Supervisor:
        """Start all; returns at once. Their /health says when they serve."""
        self._watcher.start()
        return self

    def stop(self) -> None:
        """End all of them, gently at first. Twice is harmless."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._watcher.ident:
            self._watcher.join()
        running = [one for one in self.instances if one.is_running]
        for one in running:
            _signal(one, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        for one in running:
            assert one.process
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0.0, deadline - time.monotonic()))
            _signal(one, signal.SIGKILL)
            one.process.wait()
        os.close(self._lifeline)
        os.close(self._lifeline_read)

    def __enter__(self) -> Supervisor:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            for one in self.instances:
                if one.process is None and time.monotonic() >= one._due:
                    self._launch(one)
                elif one.process is not None and one.process.poll() is not None:
                    self._buried(one)
            self._stopping.wait(_POLL_SECONDS)

    def _launch(self, one: Supervised) -> None:
        # Larger than any before, also over restarts of the supervisor.
        one.settings = replace(one.settings, epoch=max(one.settings.epoch + 1, time.time_ns() // 1_000_000))
        output = one.log_path.open("ab") if one.log_path else subprocess.DEVNULL
        try:
            one.process = subprocess.Popen(
                [sys.executable, "-m", "engine.pools.serve", str(self._lifeline_read)],
                pass_fds=(self._lifeline_read,),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment(one.settings),
                start_new_session=True,
            )
        finally:
            if not isinstance(output, int):
                output.close()
        one._started = time.monotonic()
        assert one.process.stdin
        with contextlib.suppress(BrokenPipeError):
            one.process.stdin.write(settings_to_json(one.settings).encode())
            one.process.stdin.close()

    def _buried(self, one: Supervised) -> None:
        """Note a death and when to start again."""
        assert one.process
        status, one.process = one.process.returncode, None
        if time.monotonic() - one._started >= STEADY_SECONDS:
            one._pause = FIRST_PAUSE
        one._due = time.monotonic() + one._pause
        one.restarts += 1
        one.ended_with = status
        log.warning("%s ended with %s; it starts again in %.1f s", one.settings.engine_id, status, one._pause)
        one._pause = min(2 * one._pause, LONGEST_PAUSE)


def _with_port(settings: InstanceSettings) -> InstanceSettings:
    if settings.port:
        return settings
    with listen(settings.host, 0) as sock:
        return replace(settings, port=sock.getsockname()[1])


def _environment(settings: InstanceSettings) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": str(settings.threads),
    }


def _signal(one: Supervised, number: signal.Signals) -> None:
    """To the instance and whatever it has started."""
    assert one.process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(one.process.pid, number)
