"""`pagemill balance calibrate` against a live stack: a file that the router plans with, or one clear sentence."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

pytest.importorskip("lmdeploy")

from typer.testing import CliRunner

from api.cli.main import app
from engine.balancer.costs import Costs
from engine.role import Role
from engine.router.local_stack import LocalStack
from tests.engine.router.cluster import Cluster, wait_until
from tests.engine.router.nursery import ROOT

# Held to a share, so that a busy machine does not make nonsense of the samples.
INSTANCE = {
    "session_len": 1024,
    "kv_blocks": 200,
    "block_size": 16,
    "max_batch_size": 4,
    "canary_s": 30.0,
    "cpu_share": 0.1,
}
SHORT = ["--rounds", "2", "--longest", "128"]


@pytest.fixture(scope="module")
def stack(checkpoint: Path) -> Iterator[LocalStack]:
    with LocalStack(checkpoint, [Role.PREFILL, Role.DECODE], **INSTANCE) as started:
        yield started.ready()


def test_costs_of_a_live_engine_are_measured_and_the_router_plans_with_them(stack: LocalStack, tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    arguments = ["balance", "calibrate", "--router", stack.url, "--token", stack.token, "-o", str(out), *SHORT]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    costs = Costs.load(out)
    assert json.loads(done.stdout)["step_s"] == costs.step_s
    assert costs.step(1, 100) > 0
    assert costs.visual_token_s > 0 and costs.text_token_s + costs.attention_s + costs.prefill_request_s > 0
    (blocks,) = {status["total_blocks"] for status in stack.statuses()}
    assert (costs.max_sequences, costs.kv_capacity_tokens) == (4, 16 * blocks)
    assert {name for name, _ in costs.error} == {"prefill", "step", "transfer", "flip"}
    assert stack.url in costs.source
    assert "Decode steps" in done.stderr
    # As it was: roles, and no block held.
    assert sorted(status["role"] for status in stack.statuses()) == ["decode", "prefill"]
    assert set(stack.at_rest().values()) == {0}

    router = {"costs": str(out), "balance": "observe", "instances": [s["address"]["url"] for s in stack.statuses()]}
    with LocalStack(stack.model, (), router, token=stack.token) as second:
        headers = {"Authorization": f"Bearer {second.token}"}

        def source() -> str:
            return str(httpx.get(f"{second.url}/v1/engine/balance", headers=headers).json()["costs"]["source"])

        wait_until(lambda: "as measured here" in source(), "the balancer has ticked")
        assert source().startswith(costs.source)


def test_nobody_there_and_a_wrong_token_are_told_apart(tmp_path: Path) -> None:
    arguments = ["balance", "calibrate", "-o", str(tmp_path / "costs.json"), "--router"]
    nobody = CliRunner().invoke(app, [*arguments, "http://127.0.0.1:9"])
    assert nobody.exit_code == 5 and "does not answer" in nobody.stderr
    with Cluster(token="a secret of the tests") as cluster:
        wrong = CliRunner().invoke(app, [*arguments, cluster.url, "--token", "wrong"])
        assert wrong.exit_code == 5 and "token" in wrong.stderr
        empty = CliRunner().invoke(app, [*arguments, cluster.url, "--token", cluster.token])
        assert empty.exit_code == 5 and "No instance is ready" in empty.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [[], ["--router", "http://127.0.0.1:9", "--model", "."]])
def test_exactly_one_of_router_and_model_is_asked_for(given: list[str]) -> None:
    done = CliRunner().invoke(app, ["balance", "calibrate", *given])
    assert done.exit_code == 2


def test_a_router_with_a_bad_cost_file_says_so(tmp_path: Path) -> None:
    bad = tmp_path / "costs.json"
    bad.write_text('{"speed": 1}')
    done = CliRunner().invoke(app, ["router", "--port", "0"], env={"PAGEMILL_ROUTER_COSTS": str(bad)})
    assert done.exit_code == 2 and "is not a cost file" in done.stderr


def test_an_interrupt_ends_what_it_started_and_writes_nothing(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    command = [sys.executable, "-m", "api.cli.main", "balance", "calibrate", "--model", str(checkpoint), "-o", str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr and "Starting" in process.stderr.readline()
        children = wait_until(
            lambda: found if len(found := psutil.Process(process.pid).children(recursive=True)) >= 3 else None,
            "router and instances run",
        )
        process.send_signal(signal.SIGINT)
        assert "Interrupted" in process.stderr.read()
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(map(psutil.Process.is_running, children)), "nothing is left")
    assert not out.exists()
