"""`pagemill bench engine`: the engine held against transformers and against what it has to reach.

Each row is one function of `ROWS`: it gets a `Bench` (checkpoints, a folder, how long to measure) and answers figures
and details. A row runs its engines in processes of their own, because LMDeploy takes one engine for each.

Where speeds are compared, everything runs on one thread and seconds are those of the processor: on a quiet machine they
are the clock's, and on a busy one they do not depend on who else is working. The clock's are among the details.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Figure, Report, at_least, at_most

PATIENCE_SECONDS = 1800.0
AT_ONCE, QUESTIONS = 64, 32


@dataclass(frozen=True)
class Bench:
    """What the rows share.

    Attributes:
        folder: for checkpoints and compiled graphs.
        rounds: repetitions of a measurement; the median counts.
    """

    folder: Path
    rounds: int

    @cached_property
    def tiny_text(self) -> Path:
        return self._checkpoint("qwen2", "tiny")

    @cached_property
    def tiny_pictures(self) -> Path:
        return self._checkpoint("qwen2-vl", "tiny")

    @cached_property
    def thin_text(self) -> Path:
        return self._checkpoint("qwen2", "thin")

    @cached_property
    def small_text(self) -> Path:
        return self._checkpoint("qwen2", "small")

    def answers(self, *, pictures: bool) -> Path:
        """File of what transformers answers to `QUESTIONS` of `bench.engine_questions`."""
        checkpoint = self.tiny_pictures if pictures else self.tiny_text
        path = self.folder / f"{checkpoint.name}-answers.json"
        if not path.exists():
            wanted = {"checkpoint": str(checkpoint), "pictures": pictures, "count": QUESTIONS, "path": str(path)}
            self.ask("bench.engine_questions", wanted)
        return path

    def ask(self, module: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Run a module of this package in a process of its own; what it prints last is its answer.

        Raises:
            RuntimeError: it failed; the message has the end of what it wrote.
        """
        done = subprocess.run(
            [sys.executable, "-m", module, json.dumps(wanted)],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{module} failed: {done.stderr.strip()[-2000:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    @contextlib.contextmanager
    def speed_of(self, wanted: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]:
        """A process of `bench.engine_speed`: what it says of itself, and a function that lets it measure once."""
        command = [sys.executable, "-m", "bench.engine_speed", json.dumps(wanted)]
        log = self.folder / "speed.log"
        with log.open("a") as errors:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdin and process.stdout
        stdin, stdout = process.stdin, process.stdout

        def answer() -> dict[str, Any]:
            # Other libraries print as well.
            for line in stdout:
                if line.startswith("{"):
                    read: dict[str, Any] = json.loads(line)
                    return read
            raise RuntimeError(f"bench.engine_speed failed: {log.read_text()[-2000:]}")

        def once() -> dict[str, Any]:
            stdin.write("\n")
            stdin.flush()
            return answer()

        try:
            yield answer(), once
        finally:
            process.kill()
            process.wait()

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "OMP_NUM_THREADS": "1",
            "PAGEMILL_ENGINE_GRAPH_CACHE": str(self.folder / "graphs"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        }

    def _checkpoint(self, kind: Any, size: Any) -> Path:
        path = self.folder / f"{size}-{kind}"
        if not path.exists():
            # In a process of its own: the bench itself stays without torch.
            arguments = f"Path({str(path)!r}), {kind!r}, {size!r}"
            program = (
                "from pathlib import Path; from engine.random_checkpoint import write_checkpoint\n"
                f"write_checkpoint({arguments})"
            )
            subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[1], check=True)
        return path


@dataclass(frozen=True, slots=True)
class Row:
    """What one function measured."""

    figures: tuple[Figure, ...]
    details: dict[str, Any]


def measure(rounds: int = 3, only: Sequence[str] = ()) -> Report:
    """Measure all rows, or those named.

    Raises:
        ModuleNotFoundError: the engine's libraries are not installed.
        FileNotFoundError: no row has such a name.
    """
    from engine.adapters.vendors import VENDORS

    unknown = set(only) - set(ROWS)
    if unknown:
        raise FileNotFoundError(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    state = VENDORS["cpu"].availability()
    if not state.ok:
        raise ModuleNotFoundError(f"the engine is unavailable: {state.reason}")
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="pagemill-bench-") as folder:
        bench = Bench(Path(folder), rounds)
        for name in only or ROWS:
            row = ROWS[name](bench)
            figures += row.figures
            details[name] = row.details
    failures = tuple(f"{each.name}: {each.value} {each.unit}, not {each.reach}" for each in figures if not each.ok)
    return Report("engine", tuple(figures), details, failures)


def equality_in_one_process(bench: Bench) -> Row:
    """Greedy tokens against `generate`: many at once, chunked prefill, prefix caching, KV pressure, both modes."""
    everything = {"max_prefill_token_num": 64, "enable_prefix_caching": True}
    cases = {
        "text, 64 at once": (bench.tiny_text, "eager", {"max_batch_size": AT_ONCE, "num_gpu_blocks": 1600}, AT_ONCE),
        "text, chunked prefill and prefix caching": (bench.tiny_text, "eager", everything, 0),
        "text, KV pressure": (bench.tiny_text, "eager", {**everything, "num_gpu_blocks": 40}, 0),
        "text, graph": (bench.tiny_text, "graph", {**everything, "num_gpu_blocks": 40}, 0),
        "pictures": (bench.tiny_pictures, "eager", {}, 0),
        "pictures, chunked prefill, prefix caching, KV pressure": (
            bench.tiny_pictures,
            "eager",
            {**everything, "num_gpu_blocks": 40},
            0,
        ),
        "pictures, graph": (bench.tiny_pictures, "graph", everything, 0),
    }
    wrong = leaked = 0
    details = {}
    for name, (checkpoint, mode, config, at_once) in cases.items():
        wanted = {
            "checkpoint": str(checkpoint),
            "mode": mode,
            "config": config,
            "references": str(checkpoint.with_suffix(".json")),
            "copies": 6 if at_once else 1,
        }
        answer = bench.ask("bench.engine_equality", wanted)
        details[name] = answer
        wrong += sum(answer["requests"] - equal for equal in answer["rounds"].values())
        if not config.get("enable_prefix_caching"):
            leaked += answer["free_before"] - answer["free_after"]
    return Row(
        (
            at_most("one_process_wrong_answers", wrong, "answers", 0),
            at_most("one_process_leaked_blocks", leaked, "blocks", 0),
        ),
        details,
    )


def equality_in_pools(bench: Bench) -> Row:
    """The same through the router, with KV that is pulled: 64 at once, prompts in chunks, beginnings cached, and too
    few blocks for all.

    One or two pairs, shared memory or TCP, with or without pictures, eager or graph: eight of the sixteen, chosen so
    that any three of the four occur in every combination. Two engines cannot share a process, so the transport within
    one is held by its own tests (`tests/engine/interconnect/test_conformance.py`) and one engine alone by the row
    above.
    """
    wrong = held = pushed_out = otherwise = 0
    moved: list[int] = []
    details = {}
    for pairs, transport, pictures in itertools.product((1, 2), ("shared_memory", "tcp"), (False, True)):
        graph = (pairs == 2) ^ (transport == "tcp") ^ pictures
        wanted = {
            "checkpoint": str(bench.tiny_pictures if pictures else bench.tiny_text),
            "pictures": pictures,
            "references": str(bench.answers(pictures=pictures)),
            "count": QUESTIONS,
            "copies": AT_ONCE // QUESTIONS,
            "pairs": pairs,
            "transport": transport,
            "mode": "graph" if graph else "eager",
        }
        answer = bench.ask("bench.engine_pools", wanted)
        name = f"{pairs}P+{pairs}D, {transport}, {'pictures' if pictures else 'text'}, {wanted['mode']}"
        details[name] = answer
        wrong += sum(answer["requests"] - ends.get("equal", 0) for ends in answer["rounds"].values())
        held += answer["held_blocks"]
        pushed_out += answer["evicted_sequences_total"]
        moved.append(answer["kv_bytes"])
        otherwise += sum(not mode.startswith("running" if graph else "eager") for mode in answer["modes"])
        otherwise += answer["transports"] != [transport]
        otherwise += answer["graph_misses_total"] > 0 or (answer["graph_steps_total"] > 0) != graph
    return Row(
        (
            at_most("pools_wrong_answers", wrong, "answers", 0),
            at_most("pools_held_blocks", held, "blocks", 0),
            at_least("pools_least_kv_moved", min(moved), "bytes", 1),
            at_least("pools_sequences_pushed_out", pushed_out, "sequences", 1),
            at_most("pools_not_as_asked", otherwise, "instances", 0),
        ),
        details,
    )


def speed(bench: Bench) -> Row:
    """Eight at once on a checkpoint of 121 million parameters in float32, against transformers on as many threads."""
    wanted = {"checkpoint": str(bench.small_text), "mode": "eager", "tokens": 32, "peer": True}
    with bench.speed_of(wanted) as (about, once):
        rounds = [once() for _ in range(bench.rounds)]
    return Row(
        (
            at_least("speed_over_one_by_one", _ratio(rounds, "engine", "transformers one by one"), "ratio", 3.0),
            at_least("speed_over_batched", _ratio(rounds, "engine", "transformers batched"), "ratio", 1.0),
        ),
        {**about, "rounds": rounds},
    )


def graph_over_eager(bench: Bench) -> Row:
    """Eight at once on a checkpoint of 2 million parameters in twelve layers, where a step is calls, not arithmetic."""
    wanted = {"checkpoint": str(bench.thin_text), "tokens": 96, "peer": False}
    eager, graph = ({**wanted, "mode": mode} for mode in ("eager", "graph"))
    with bench.speed_of(graph) as (about, graph_once), bench.speed_of(eager) as (_, eager_once):
        rounds = [
            {"graph": graph_once()["engine"], "eager": eager_once()["engine"]} for _ in range(max(9, bench.rounds))
        ]
    ratio = _ratio(rounds, "graph", "eager") if about["graph"].startswith("running") else None
    return Row((at_least("graph_over_eager", ratio, "ratio", 1.5),), {**about, "rounds": rounds})


def _ratio(rounds: Sequence[Mapping[str, Any]], ours: str, theirs: str) -> float:
    """The median over rounds: within one, both had the machine in the same state."""
    return median(each[ours]["processor"] / each[theirs]["processor"] for each in rounds)


def first_token_and_flip(_: Bench) -> Row:
    """Through a prefill and a decode instance against one that does both; a role flip of an idle instance."""
    return _stack("ttft", "flip")


def gaps(_: Bench) -> Row:
    """Between tokens of running requests while long prompts arrive, in pools against hybrids."""
    return _stack("gaps")


def kills(_: Bench) -> Row:
    """500 requests while instances of both roles are killed at random."""
    return _stack("kills")


def _stack(*parts: str) -> Row:
    from bench.engine_stack import measure as measure_stack

    report = measure_stack(only=parts)
    return Row(report.figures, report.details)


ROWS: dict[str, Callable[[Bench], Row]] = {
    "equality_in_one_process": equality_in_one_process,
    "equality_in_pools": equality_in_pools,
    "speed": speed,
    "graph_over_eager": graph_over_eager,
    "first_token_and_flip": first_token_and_flip,
    "gaps": gaps,
    "kills": kills,
}
