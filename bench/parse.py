"""`pagemill bench parse`: speed and memory against bare MinerU, on one file, in one run.

Pages a second count the whole command, start-up included, on both sides. Each side writes its files into a
fresh folder. Repetitions alternate the order, and medians are compared, because machines are noisy.

Memory is the largest sum of resident sizes over the process tree (see `process_tree`). It is compared
between a long and a short document, both made by repeating the pages of the file: it must not grow with the
document.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.figures import Report, at_least, at_most
from bench.peer import peer_command
from bench.process_tree import Run, run
from bench.product import parse_command

SPEED_REACH = 1.6
MEMORY_REACH = 1.3
LONG_PAGES, SHORT_PAGES = 400, 50
TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True)
class Contestant:
    """One side of the comparison: a name, and its command for a file and an output folder."""

    name: str
    command: Callable[[Path, Path], Sequence[str]]


CONTESTANTS = (
    Contestant("mineru", lambda file, output: peer_command([file], output)),
    Contestant("workers_1", lambda file, output: parse_command([file], output, "--workers", "1")),
    Contestant("workers_2", lambda file, output: parse_command([file], output, "--workers", "2")),
)


def measure(file: Path, *, runs: int = 1, memory: bool = True) -> Report:
    """Parse `file` with each contestant `runs` times, then the long and the short document.

    Args:
        memory: False leaves out the long and the short document, whose figure then fails as not measured.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file}")
    pages = _page_count(file)
    done: dict[str, list[Run]] = {contestant.name: [] for contestant in CONTESTANTS}
    for number in range(runs):
        for contestant in CONTESTANTS if number % 2 == 0 else CONTESTANTS[::-1]:
            done[contestant.name].append(_once(contestant, file, f"{contestant.name}, run {number + 1} of {runs}"))
    speeds = {name: pages / median(r.seconds for r in results) for name, results in done.items()}
    failures = [
        f"{name}: exit {result.returncode}: {_last_line(result)}"
        for name, results in done.items()
        for result in results
        if result.returncode != 0
    ]
    ratio = None if failures else speeds["workers_2"] / speeds["mineru"]
    growth, peaks = _memory_growth(file) if memory else (None, {})
    return Report(
        "parse",
        (
            at_least("speed_over_mineru", ratio, "ratio", SPEED_REACH),
            at_most("memory_long_over_short", growth, "ratio", MEMORY_REACH),
        ),
        {
            "file": file.name,
            "pages": pages,
            "pages_per_second": {name: round(speed, 3) for name, speed in speeds.items()},
            "seconds": {name: [round(r.seconds, 2) for r in results] for name, results in done.items()},
            "peak_mb": {name: round(median(r.peak_bytes for r in rs) / 2**20) for name, rs in done.items()},
            "peak_mb_by_pages": peaks,
        },
        tuple(failures),
    )


def repeat_pages(file: Path, pages: int, target: Path) -> None:
    """Write a PDF of `pages` pages: those of `file`, from the first on, as often as needed."""
    import pypdfium2

    with pypdfium2.PdfDocument(file) as source, pypdfium2.PdfDocument.new() as repeated:
        # A whole copy at a time: its pages share fonts and pictures as those of a real document do.
        while (missing := pages - len(repeated)) > 0:
            repeated.import_pages(source, list(range(min(missing, len(source)))))
        repeated.save(target)


def _page_count(file: Path) -> int:
    import pypdfium2

    with pypdfium2.PdfDocument(file) as document:
        return len(document)


def _once(contestant: Contestant, file: Path, what: str) -> Run:
    _progress(what)
    with tempfile.TemporaryDirectory() as scratch:
        finished = run(contestant.command(file, Path(scratch)), timeout=TIMEOUT)
    _progress(f"{what}: {finished.seconds:.1f} s, peak {finished.peak_bytes / 2**20:.0f} MB")
    return finished


def _memory_growth(file: Path) -> tuple[float | None, dict[str, int]]:
    """Peak of the long document over that of the short one (None if one failed), and both in MB."""
    ours = CONTESTANTS[-1]
    peaks = {}
    with tempfile.TemporaryDirectory() as scratch:
        for pages in (SHORT_PAGES, LONG_PAGES):
            repeated = Path(scratch) / f"{pages}_pages.pdf"
            repeat_pages(file, pages, repeated)
            finished = _once(ours, repeated, f"{pages} pages, {ours.name}")
            if finished.returncode != 0:
                return None, {}
            peaks[pages] = finished.peak_bytes
    return peaks[LONG_PAGES] / peaks[SHORT_PAGES], {str(n): round(peak / 2**20) for n, peak in peaks.items()}


def _last_line(finished: Run) -> str:
    return (finished.stderr.strip().splitlines() or [""])[-1]


def _progress(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
