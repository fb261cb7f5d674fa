"""Page processes shared by documents: tasks side by side, and all of them ended together."""

from __future__ import annotations

import threading

import pytest

from pipeline.errors import Cancelled, PageCrashed
from pipeline.processes import PageProcesses
from tests.pipeline.processes.test_page_process import task, wait_until_gone


def test_tasks_run_side_by_side_in_different_processes() -> None:
    both_started = threading.Barrier(2, timeout=60)
    with PageProcesses(2) as processes:
        pids: list[int] = []

        def started(pid: int) -> None:
            pids.append(pid)
            both_started.wait()

        futures = [processes.submit(task("own_pid"), started) for _ in range(2)]
        for future in futures:
            future.result(timeout=60)
    assert len(set(pids)) == 2


def test_closing_cancels_what_runs_and_what_waits_and_leaves_no_process() -> None:
    started = threading.Event()
    pids: list[int] = []
    processes = PageProcesses(1)
    running = processes.submit(task("yield_then_hang", 1), lambda value: started.set())
    waiting = processes.submit(task("own_pid"), pids.append)
    assert started.wait(60)
    child = processes._processes[0].pid
    assert child is not None
    processes.close()
    with pytest.raises(Cancelled):
        running.result(timeout=5)
    assert waiting.cancelled()
    assert wait_until_gone(child)
    assert pids == []


def test_a_process_whose_values_could_not_be_taken_is_not_given_to_the_next_task() -> None:
    def refuse(value: object) -> None:
        raise ValueError("no room for it")

    with PageProcesses(1) as processes:
        with pytest.raises(ValueError, match="no room"):
            processes.submit(task("yield_then_hang", 1), refuse).result(timeout=60)
        pids: list[int] = []
        processes.submit(task("own_pid"), pids.append).result(timeout=60)
    assert len(pids) == 1, "the next task's answer is its own, from a fresh process"


def test_a_process_takes_the_next_task_while_values_of_the_last_one_are_worked_on() -> None:
    with PageProcesses(1) as processes:
        first = processes.stream(task("own_pid"))
        pid = next(first)
        assert processes.call(task("own_pid")) == pid, "it did not wait for the reader of its last values"
        assert list(first) == []


def test_a_reader_who_leaves_early_cancels_the_task() -> None:
    with PageProcesses(1) as processes:
        values = processes.stream(task("yield_then_hang", 1))
        next(values)
        child = processes._processes[0].pid
        assert child is not None
        values.close()
        assert wait_until_gone(child)


def test_a_reader_gets_the_values_and_then_the_error() -> None:
    with PageProcesses(1) as processes:
        values = processes.stream(task("yield_then_segfault", 2))
        assert [next(values), next(values)] == [0, 1]
        with pytest.raises(PageCrashed):
            next(values)
