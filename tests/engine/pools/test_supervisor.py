"""Instances end with whoever started them, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys, time
from pathlib import Path
from engine.pools.settings import InstanceSettings
from engine.pools.supervisor import Supervisor
settings = [InstanceSettings(model=Path(sys.argv[1]), token="x" * 16, engine_id=name, epoch=0) for name in "ab"]
supervisor = Supervisor(settings).start()
while not all(one.pid for one in supervisor.instances):
    time.sleep(0.01)
print(*(one.pid for one in supervisor.instances), flush=True)
sys.stdin.read()
supervisor.stop()
"""


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_no_instance_outlives_its_supervisor(checkpoint: Path, how: str) -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(checkpoint)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout and supervisor.stdin
    pids = [int(pid) for pid in supervisor.stdout.readline().split()]
    assert len(pids) == 2
    assert all(psutil.pid_exists(pid) for pid in pids)
    if how == "killed":
        os.kill(supervisor.pid, signal.SIGKILL)
    else:
        supervisor.stdin.close()
    supervisor.wait(60)
    deadline = time.monotonic() + 60
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
