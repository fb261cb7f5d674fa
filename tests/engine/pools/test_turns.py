"""Whose step is next on LMDeploy's engine, by its own code with our rules in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lmdeploy")

PROGRAM = """
import sys
from types import SimpleNamespace
from engine.lmdeploy_patches.turns import install_turns, patient_of
from lmdeploy.pytorch.engine.inputs_maker import InputsMakerAsync

install_turns(join_steps=3, patient_steps=4)


def steps_before(tokens, running, patient, last_chunk=False):
    waiting = [SimpleNamespace(session_id=n, num_token_ids=tokens) for n in (1, 2)]
    scheduler = SimpleNamespace(
        waiting=waiting, has_waiting=lambda: True, num_ready=lambda: running, num_running=lambda: 0
    )
    patient_of(scheduler).update(patient)
    maker = SimpleNamespace(
        scheduler=scheduler,
        config=SimpleNamespace(prefill_interval=16, max_prefill_token_num=4096, max_batches=8),
        _decode_count=0,
        _has_pending_last_long_context_chunk=lambda: last_chunk,
    )
    for count in range(100):
        if InputsMakerAsync.do_prefill_default(maker):
            return count


print(eval(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        ("steps_before(100, running=2, patient={1, 2})", 4),
        ("steps_before(100, running=6, patient={1, 2})", 4),
        ("steps_before(100, running=2, patient=set())", 0),
        ("steps_before(100, running=2, patient={1})", 0),
        ("steps_before(100, running=0, patient={1, 2})", 0),
        ("steps_before(100, running=2, patient={1, 2}, last_chunk=True)", 0),
        ("steps_before(100, running=6, patient=set())", 16),
        ("steps_before(1, running=6, patient=set())", 3),
    ],
    ids=[
        "prompts that came early wait for a few decode steps",
        "and for no more when many places are taken",
        "others are computed at once while half of the places are free",
        "one that did not come early is not held up by another that did",
        "with nothing to decode nothing is waited for",
        "a prompt that is being computed in parts is finished",
        "with more than half of the places taken LMDeploy's interval holds",
        "pulled sequences join within three steps",
    ],
)
def test_decode_steps_before_what_waits_has_its_turn(case: str, steps: int) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", PROGRAM, case], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1:] == [str(steps)], done.stderr[-2000:]
