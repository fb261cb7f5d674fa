"""What the tasks of one worker share."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.document import SourceDocument, SourceKind
from pipeline.processes import PageProcesses
from pipeline.settings import PipelineSettings
from workers.artifacts import ArtifactStore
from workers.holdings import Holdings
from workers.memory import MemoryGate
from workers.settings import ServiceSettings
from workers.store import Claim, JobKind, JobStore


@dataclass(frozen=True, slots=True)
class WorkContext:
    """The worker's stores, processes and limits.

    Attributes:
        worker: its id, the owner of its leases.
        processes: page processes for each kind of work that this worker does.
        gate: bounds the pages in work by memory.
        scratch: the worker's own folder; everything in it goes when the worker does.
        wake: tells workers, this one included, that there may be new work.
        draining: no new work is claimed.
        model_threads: for the models in each page process.
    """

    worker: str
    store: JobStore
    artifacts: ArtifactStore
    settings: ServiceSettings
    pipeline: PipelineSettings
    processes: dict[JobKind, PageProcesses]
    gate: MemoryGate
    holdings: Holdings
    scratch: Path
    wake: Callable[[], None]
    model_threads: int
    draining: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def folder(self, claim: Claim) -> Iterator[Path]:
        """Where one claim may make a working folder; gone at the end of the `with` block."""
        path = self.scratch / f"{claim.kind}-{claim.token}"
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def input_key(claim: Claim) -> str:
    """The artifact that holds the bytes that were submitted."""
    return f"inputs/{claim.sha256}"


def source_key(claim: Claim) -> str:
    """The artifact that pages are read from: the input itself, or the PDF made of an image."""
    return input_key(claim) if claim.source_kind == SourceKind.PDF else f"jobs/{claim.job_key}/source.pdf"


def page_key(job_key: str, index: int) -> str:
    """The artifact of one finished page; `index` counts from 0."""
    return f"jobs/{job_key}/pages/{index + 1:05d}.json"


def opened_source(context: WorkContext, claim: Claim) -> SourceDocument:
    """The document of a job that passed preflight, as a local file. Raises ArtifactError."""
    return SourceDocument(
        path=str(context.artifacts.fetch(source_key(claim))),
        kind=SourceKind(claim.source_kind or SourceKind.PDF),
        sha256=claim.sha256,
        size_bytes=claim.size_bytes,
        page_count=claim.page_count,
        password=claim.options.password,
    )
