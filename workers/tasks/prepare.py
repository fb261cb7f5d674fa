"""Prepare: preflight the input, count its pages, cut them into windows."""

from __future__ import annotations

import threading
from pathlib import Path

from pipeline.document import SourceKind
from pipeline.errors import Damaged, PageFailed
from pipeline.page_range import select_pages
from pipeline.steps import damaged, open_source
from pipeline.windows import plan_windows
from workers.store import Claim, JobKind
from workers.tasks.context import WorkContext, input_key


def prepare(context: WorkContext, claim: Claim, cancelled: threading.Event) -> None:
    """Open the input and report its pages.

    Raises:
        BadInput: the job fails with it. Other errors of the pipeline and the stores.
    """
    with context.folder(claim) as folder:
        path = context.artifacts.fetch(input_key(claim))
        processes = context.processes[JobKind.PREPARE]
        try:
            source = open_source(path, claim.options, folder, processes, context.pipeline, cancelled)
        except PageFailed as error:
            if claim.attempt <= context.settings.crashes_forgiven:
                raise  # the process may have been killed for another reason than the file
            raise damaged(error) from error
        if source.sha256 != claim.sha256:
            raise Damaged("The stored input is not what was submitted: its hash differs. Submit the document again.")
        if source.kind is SourceKind.IMAGE:
            context.artifacts.put(f"jobs/{claim.job_key}/source.pdf", Path(source.path))
    selected = select_pages(claim.options.pages, source.page_count)
    bad = [page for page in source.bad_pages if page.index in set(selected)]
    refused = {page.index for page in bad}
    context.store.opened(
        claim,
        page_count=source.page_count,
        source_kind=str(source.kind),
        selected=selected,
        bad=bad,
        windows=plan_windows([index for index in selected if index not in refused], context.pipeline.window_pages),
    )
