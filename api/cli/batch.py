"""Several documents through one set of page processes, their events in one place."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline import DocumentFinished, Event, ParsedDocument, ParseOptions, PipelineError, page_processes, stream
from pipeline.errors import OutputBusy
from pipeline.processes import PageProcesses


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one input ended: with a document or with an error."""

    input: Path
    document: ParsedDocument | None = None
    error: PipelineError | None = None


def parse_all(
    files: Sequence[Path],
    output: Path,
    options: ParseOptions,
    workers: int | None,
    report: Callable[[Event | Outcome], None],
) -> list[Outcome]:
    """Parse every file and return the outcomes, in the order of the files.

    As many documents are open at a time as there are page processes, so that short ones keep all of them
    busy. `report` is called in the calling thread with every event, and with the outcome of each document.

    Raises:
        KeyboardInterrupt: as it comes, after the page processes have ended; finished pages are kept.
    """
    cancelled = threading.Event()
    with page_processes(workers) as processes:
        documents = ThreadPoolExecutor(processes.size, thread_name_prefix="document")
        try:
            outcomes = _parse_together(files, output, options, processes, documents, cancelled, report)
            # Equal files of equal names share a folder; whoever came second finds it busy, and done now.
            for number, outcome in enumerate(outcomes):
                if isinstance(outcome.error, OutputBusy):
                    outcomes[number] = _parse_one(outcome.input, output, options, processes, cancelled, report)
            for outcome in outcomes:
                if isinstance(outcome.error, OutputBusy):
                    report(outcome)
            return outcomes
        except BaseException:
            cancelled.set()
            raise
        finally:
            documents.shutdown(wait=True, cancel_futures=True)


def _parse_together(
    files: Sequence[Path],
    output: Path,
    options: ParseOptions,
    processes: PageProcesses,
    documents: ThreadPoolExecutor,
    cancelled: threading.Event,
    report: Callable[[Event | Outcome], None],
) -> list[Outcome]:
    arrived: queue.SimpleQueue[Event | Outcome] = queue.SimpleQueue()

    def work(file: Path) -> None:
        arrived.put(_parse_one(file, output, options, processes, cancelled, arrived.put))

    for file in files:
        documents.submit(work, file)
    outcomes: dict[Path, Outcome] = {}
    while len(outcomes) < len(files):
        item = arrived.get()
        if isinstance(item, Outcome):
            outcomes[item.input] = item
        if not (isinstance(item, Outcome) and isinstance(item.error, OutputBusy)):
            report(item)
    return [outcomes[file] for file in files]


def _parse_one(
    file: Path,
    output: Path,
    options: ParseOptions,
    processes: PageProcesses,
    cancelled: threading.Event,
    report: Callable[[Event], None],
) -> Outcome:
    outcome = Outcome(file)
    try:
        for event in stream(file, output, options, processes=processes, cancelled=cancelled):
            report(event)
            if isinstance(event, DocumentFinished):
                outcome = replace(outcome, document=event.document)
    except PipelineError as error:
        return Outcome(file, error=error)
    except Exception as error:  # noqa: BLE001 - one document's surprise must not end the others
        return Outcome(file, error=PipelineError(f"{type(error).__name__}: {error}"))
    return outcome
