from __future__ import annotations

import sys

import psutil

from bench.process_tree import run

ORPHAN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(child.pid)
"""

BIG_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time; b = bytearray(200 << 20); time.sleep(0.5)"], check=True)
"""


def test_output_and_exit_status_come_back() -> None:
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"]
    finished = run(command, timeout=60)
    assert (finished.returncode, finished.stdout, finished.stderr) == (3, "out\n", "err\n")
    assert finished.left_behind == ()


def test_more_output_than_a_pipe_holds_does_not_stop_the_command() -> None:
    finished = run([sys.executable, "-c", "print('x' * 1_000_000)"], timeout=60)
    assert finished.returncode == 0
    assert len(finished.stdout) == 1_000_001


def test_the_memory_of_children_counts() -> None:
    assert run([sys.executable, "-c", BIG_CHILD], timeout=60).peak_bytes > 200 * 2**20


def test_a_descendant_that_outlives_the_command_is_named_and_killed() -> None:
    finished = run([sys.executable, "-c", ORPHAN], timeout=60)
    assert len(finished.left_behind) == 1
    orphan = int(finished.stdout)
    assert str(orphan) in finished.left_behind[0]
    gone = not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE
    assert gone


def test_a_command_over_its_time_is_killed() -> None:
    finished = run([sys.executable, "-c", "import time; time.sleep(300)"], timeout=0.5)
    assert finished.returncode is None
    assert finished.left_behind == ()
