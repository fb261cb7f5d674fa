from __future__ import annotations

from pathlib import Path

import pytest

from bench import balance
from bench.balance import Cell, _all_runs
from bench.checkpoint import Checkpoint, UnusableCheckpoint

CELL = Cell("steady", "slide/4", 2)


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    Checkpoint(file, "a").put("one", {"value": 1.5})
    assert Checkpoint(file, "a").get("one") == {"value": 1.5}
    assert Checkpoint(file, "a").get("two") is None


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    Checkpoint(file, "a").put("one", {})
    with file.open("a") as out:
        out.write('{"code": "a", "ke')
    continued = Checkpoint(file, "a")
    assert continued.get("one") == {}
    continued.put("two", {})
    assert Checkpoint(file, "a").get("two") == {}


@pytest.mark.parametrize("content", ['{"code": "b", "key": "one", "result": {}}\n', "no checkpoint\n", "[1]\n"])
def test_results_of_other_code_are_not_mixed_in(content: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(content)
    with pytest.raises(UnusableCheckpoint):
        Checkpoint(file, "a")


def test_an_interrupted_bench_simulates_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "runs.jsonl"
    tasks = [(CELL, seed) for seed in range(3)]
    first = _all_runs(tasks[:2], 1, Checkpoint(file, "a"), None)
    asked: list[int] = []
    told: list[tuple[int, int]] = []
    simulate = balance.run

    def counted(cell: Cell, seed: int) -> balance.Run:
        asked.append(seed)
        return simulate(cell, seed)

    monkeypatch.setattr(balance, "run", counted)
    runs = _all_runs(tasks, 1, Checkpoint(file, "a"), lambda done, of, left: told.append((done, of)))
    assert asked == [2]
    assert told == [(2, 3), (3, 3)]
    assert runs[:2] == first
    assert [found.seed for found in runs] == [0, 1, 2]
