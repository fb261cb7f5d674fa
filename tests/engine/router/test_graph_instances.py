"""Graph mode behind the router: the same tokens, every decode step in the graph, and a start from the disk cache."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("lmdeploy") is None:
    pytest.skip("lmdeploy is not installed (make engine)", allow_module_level=True)
if shutil.which("g++") is None and shutil.which("clang++") is None:
    pytest.skip("graph mode takes a C++ compiler", allow_module_level=True)

from engine.role import Role
from engine.router.local_stack import LocalStack
from tests.engine.pools.reference import Question, Reference, picture
from tests.engine.router.test_real_engine import INSTANCE, TOKENS, ask

QUESTIONS = [
    Question(f"Question {n}, {'long ' * (10 * (n % 3))}", tuple(picture(84, 56, 10 * n + k) for k in range(n % 3)))
    for n in range(9)
]
# Two instances of which one may compile while the other waits for it.
START_SECONDS = 900.0


@pytest.fixture(autouse=True)
def graphs_are_kept(graph_cache: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGEMILL_ENGINE_GRAPH_CACHE", str(graph_cache))
        yield


@pytest.mark.timeout(1800)
def test_instances_in_graph_mode_answer_as_transformers_and_start_from_the_cache(checkpoint: Path) -> None:
    reference = Reference(checkpoint)
    expected = [reference.answer(question, TOKENS) for question in QUESTIONS]
    for roles, how in (
        ((Role.PREFILL, Role.DECODE), "running "),
        ((Role.HYBRID,), "running loaded from "),
    ):
        with LocalStack(checkpoint, roles, eager=False, **INSTANCE) as stack:
            answers = ask(stack.ready(START_SECONDS), *QUESTIONS)
            assert [answer.error for answer in answers] == [None] * len(QUESTIONS)
            assert [tuple(answer.tokens) for answer in answers] == expected
            assert set(stack.at_rest().values()) == {0}
            statuses = stack.statuses()
        for status in statuses:
            assert status["mode"] == "graph"
            assert status["operators"]["graph"].startswith(how)
            assert status["counters"]["graph_misses_total"] == 0
            assert status["counters"]["fallbacks_total"] == 0
        assert sum(status["counters"]["graph_steps_total"] for status in statuses) >= TOKENS - 1
