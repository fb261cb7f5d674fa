from __future__ import annotations

from bench.balance import Cell, Run, figures_of


def one(group: str, ours: int, static: int, **more: int) -> Run:
    in_time = {"ours": ours, "static": static, "even": static, "matching": 90, "threshold": 50} | more
    return Run(
        Cell(group, f"{group}{ours}", 8),
        0,
        100,
        in_time,
        {"ours": 2, "static": 0, "even": 0, "matching": 8, "threshold": 3},
        {"ours": 1.0, "static": 4.0, "even": 5.0, "matching": 1.0, "threshold": 4.0},
        0.05 if group == "phases" else None,
    )


def values(*runs: Run) -> dict[str, tuple[float | None, bool]]:
    return {figure.name: (figure.value, figure.ok) for figure in figures_of(runs)}


def test_the_worst_cell_counts() -> None:
    found = values(
        one("phases", 95, 50),
        one("phases", 96, 90),
        one("steady", 98, 100),
        one("trace", 90, 100),
        one("into prefill", 90, 90),
    )
    assert found["goodput_over_static_on_shifts"] == (1.0667, False)
    assert found["goodput_over_static_anywhere"] == (0.9, False)
    assert found["worst_regret"] == (0.05, True)
    assert found["flips_over_matching"] == (0.25, True)
    assert found["ttft_p90_saved_after_shift"] == (0.8, True)


def test_nothing_measured_is_not_reached() -> None:
    assert not any(ok for _, ok in values().values())
