from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from engine.balancer.costs import Costs
from engine.balancer.simulator.mix import mean_page, pages, parse_mix
from engine.balancer.simulator.traces import read_trace, replay

COSTS = Costs()


def test_decode_work_of_a_page_differs_tenfold_between_kinds_and_prefill_hardly() -> None:
    slide, prose, tables = (mean_page(kind) for kind in ("slide", "prose", "tables"))
    assert tables.output / slide.output == pytest.approx(10, rel=0.2)
    assert prose.output == pytest.approx(1265, rel=0.1)
    assert COSTS.prefill_s(tables) / COSTS.prefill_s(slide) < 1.5


def test_the_best_split_moves_between_five_to_three_and_three_to_five() -> None:
    for kind, share in (("prose", 5), ("tables", 3)):
        page = mean_page(kind)
        prefill, decode = COSTS.prefill_s(page), COSTS.decode_s(page)
        assert round(8 * prefill / (prefill + decode)) == share


def test_phases_ramps_sines_weights_and_loads_are_read() -> None:
    mix = parse_mix("prose/60, prose=3+tables/30@0.5, prose>tables/20, prose~form/40@0.2>1.0")
    assert mix.seconds == 150
    assert mix.shifts == (60, 90, 110)
    assert mix.at(30.0) == ({"prose": 1.0}, 0.85)
    assert mix.at(70.0) == ({"prose": 0.75, "tables": 0.25}, 0.5)
    weights, _ = mix.at(100.0)
    assert weights["tables"] == pytest.approx(0.5)
    weights, load = mix.at(130.0)
    assert (weights["form"], load) == (pytest.approx(1.0), pytest.approx(0.6))


@pytest.mark.parametrize("text", ["", "prose", "poetry/60", "prose/0", "prose=0/60", "prose/60@"])
def test_what_is_not_a_mix_is_refused_with_the_part_that_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"phase|kind|weighs|lasts"):
        parse_mix(text)


def test_the_same_seed_gives_the_same_pages_and_another_seed_others() -> None:
    mix = parse_mix("prose/20,tables/10")
    assert pages(mix, 8, COSTS, 1) == pages(mix, 8, COSTS, 1)
    assert pages(mix, 8, COSTS, 1) != pages(mix, 8, COSTS, 2)


def test_bursts_vary_more_than_poisson_at_the_same_rate() -> None:
    mix = parse_mix("prose/400@0.5")

    def variation(burstiness: float) -> tuple[float, float]:
        at = [j.at for j in pages(mix, 8, COSTS, 1, burstiness)]
        gaps = [b - a for a, b in pairwise(at)]
        average = mean(gaps)
        return average, mean((g - average) ** 2 for g in gaps) / average**2

    (poisson, one), (bursty, more) = variation(1.0), variation(6.0)
    assert one == pytest.approx(1.0, rel=0.1)
    assert more == pytest.approx(6.0, rel=0.25)
    assert poisson == pytest.approx(bursty, rel=0.12)


def test_traces_with_either_clock_are_read(tmp_path: Path) -> None:
    dated = tmp_path / "dated.csv"
    dated.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.4799600,3180,8"
    )
    assert [(round(r.at, 3), r.prompt, r.output) for r in read_trace(dated)] == [(0.0, 4808, 10), (1.5, 3180, 8)]
    counted = tmp_path / "counted.csv"
    counted.write_text("timestamp_ms,input_length,output_length\n40,7,3\n0,5,0\n")
    assert [(r.at, r.prompt, r.output) for r in read_trace(counted)] == [(0.0, 5, 1), (0.04, 7, 3)]


@pytest.mark.parametrize(
    ("content", "said"),
    [("a,b\n1,2\n", "no column"), ("arrival,input_tokens,output_tokens\n1,x,2\n", "line 2"), ("", "no column")],
)
def test_what_is_not_a_trace_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        read_trace(path)


def test_a_trace_is_thickened_to_a_load_without_changing_its_pace(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "arrival,input_tokens,output_tokens\n" + "".join(f"{n * 0.5},1000,100\n" for n in range(400)), "utf-8"
    )
    recorded = read_trace(path)
    half, full = (replay(recorded, 8, COSTS, 1, load, 100.0) for load in (0.4, 0.8))
    assert len(full) == pytest.approx(2 * len(half), rel=0.1)
    assert all(0 <= j.at <= 100 for j in full)
    as_it_is = replay(recorded, 8, COSTS, 1)
    assert [j.at for j in as_it_is] == [r.at for r in recorded]
