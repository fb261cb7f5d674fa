"""A run as a picture: what arrived, roles, queues, and jobs in time, one above the other over the same time."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from engine.balancer.simulator.experiment import Workload
from engine.balancer.simulator.outcome import Outcome

BIN_S = 5.0
LINES = {"static": "--", "even": ":"}


def draw(path: Path, workload: Workload, outcomes: Mapping[str, Outcome]) -> tuple[Path, Path]:
    """Write `path` with the suffixes .png and .html, the latter with the picture and the decisions inside.

    Args:
        path: with or without a suffix.
        workload: what was simulated.
        outcomes: of one seed, by policy; "ours" must be among them.

    Returns:
        Both files.
    """
    figure, axes = pyplot.subplots(4, 1, sharex=True, figsize=(9, 9), constrained_layout=True)
    ours = outcomes["ours"]
    _arrivals(axes[0], ours)
    _roles(axes[1], ours)
    _queues(axes[2], outcomes)
    _in_time(axes[3], outcomes)
    for axis in axes:
        for shift in workload.shifts:
            axis.axvline(shift, color="0.6", linewidth=0.8, linestyle="--")
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("seconds")
    axes[-1].set_xlim(0, workload.duration_s)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=90)
    pyplot.close(figure)
    png, page = path.with_suffix(".png"), path.with_suffix(".html")
    png.parent.mkdir(parents=True, exist_ok=True)
    png.write_bytes(picture.getvalue())
    page.write_text(_page(workload, ours, picture.getvalue()), "utf-8")
    return png, page


def _arrivals(axis: pyplot.Axes, ours: Outcome) -> None:
    kinds = sorted({job.kind for job in ours.simulated})
    edges = _edges(ours.duration_s)
    counts = []
    for kind in kinds:
        row = [0.0] * (len(edges) - 1)
        for job in ours.simulated:
            if job.kind == kind:
                row[min(len(row) - 1, int(job.at / BIN_S))] += 1 / BIN_S
        counts.append(row)
    axis.stackplot(edges[:-1], counts, labels=kinds, step="post", alpha=0.8)
    axis.set_ylabel("arrivals /s")
    axis.legend(loc="upper right", fontsize=8, ncols=len(kinds), frameon=False)


def _roles(axis: pyplot.Axes, ours: Outcome) -> None:
    at = [s.at for s in ours.samples]
    rows = [[getattr(s, name) for s in ours.samples] for name in ("prefill", "changing", "hybrid", "decode")]
    axis.stackplot(
        at,
        rows,
        labels=["prefill", "changing", "hybrid", "decode"],
        colors=["#4477aa", "#bbbbbb", "#228833", "#ee6677"],
        step="post",
    )
    axis.set_ylabel("instances (ours)")
    axis.legend(loc="lower right", fontsize=8, ncols=4)


def _queues(axis: pyplot.Axes, outcomes: Mapping[str, Outcome]) -> None:
    for name, outcome in outcomes.items():
        waiting = [s.waiting_prefill + s.waiting_decode for s in outcome.samples]
        axis.plot([s.at for s in outcome.samples], waiting, label=name, linewidth=1.2, linestyle=LINES.get(name, "-"))
    axis.set_ylabel("requests waiting")
    axis.legend(loc="upper right", fontsize=8, ncols=len(outcomes), frameon=False)


def _in_time(axis: pyplot.Axes, outcomes: Mapping[str, Outcome]) -> None:
    for name, outcome in outcomes.items():
        edges = _edges(outcome.duration_s)
        good, all_ = [0] * (len(edges) - 1), [0] * (len(edges) - 1)
        for job, ok in zip(outcome.simulated, outcome.in_time_by_job(), strict=True):
            index = min(len(good) - 1, int(job.at / BIN_S))
            all_[index] += 1
            good[index] += ok
        shares = [g / a if a else float("nan") for g, a in zip(good, all_, strict=True)]
        axis.step(edges[:-1], shares, where="post", label=name, linewidth=1.2, linestyle=LINES.get(name, "-"))
    axis.set_ylabel("share in time\n(by arrival)")
    axis.set_ylim(-0.03, 1.05)
    axis.legend(loc="lower right", fontsize=8, ncols=len(outcomes), frameon=False)


def _edges(seconds: float) -> list[float]:
    return [index * BIN_S for index in range(int(seconds / BIN_S) + 2)]


def _page(workload: Workload, ours: Outcome, png: bytes) -> str:
    rows = "".join(f"<tr><td>{at:.0f}</td><td>{html.escape(reason)}</td></tr>" for at, reason in ours.decisions)
    figures = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{value:.4g}</td></tr>" for name, value in ours.summary().items()
    )
    name = html.escape(workload.name)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        "<style>body{font:14px sans-serif;max-width:60em;margin:2em auto}td{padding:.1em .8em;vertical-align:top}"
        "img{max-width:100%}</style>"
        f'<h1>{name}</h1><img alt="arrivals, roles, queues and jobs in time" '
        f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<h2>Decisions</h2><table>{rows}</table><h2>Figures of ours</h2><table>{figures}</table></html>\n"
    )
