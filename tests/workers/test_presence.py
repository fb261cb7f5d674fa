"""A worker knows whether a neighbour's process still runs, whatever the clock says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from workers.presence import is_gone, this_process


def test_this_process_is_there_and_one_that_ended_is_gone() -> None:
    own = this_process(("page",), 1)
    assert not is_gone(own)
    with subprocess.Popen([sys.executable, "-c", "pass"]) as other:
        pass
    assert is_gone(replace(own, pid=other.pid))


def test_another_process_with_the_same_id_is_not_mistaken_for_it() -> None:
    own = this_process(("page",), 1)
    assert is_gone(replace(own, process_started_at=own.process_started_at - 1))


def test_every_start_has_a_name_of_its_own() -> None:
    assert this_process((), 1).id != this_process((), 1).id
