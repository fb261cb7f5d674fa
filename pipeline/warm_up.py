"""What a page process loads before its first task, so that the first page of a service need not wait for it.

Tasks for `pipeline.processes`, one for each kind of work. What is missing is reported by the page that needs it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipeline.page_model import PageModel, Quality, Route


def opening(argument: object) -> Iterator[None]:
    """For `pipeline.open`."""
    import pipeline.open  # noqa: F401 - loading it is all

    yield None


def pages(threads: int) -> Iterator[None]:
    """For `pipeline.recognise`: read an empty page in each of the quick ways.

    Args:
        threads: for the models, as in the windows to come.
    """
    import pypdfium2

    from pipeline.recognise import WindowRequest, recognise_window

    with tempfile.TemporaryDirectory(prefix="pagemill-") as folder, contextlib.suppress(Exception):
        document = pypdfium2.PdfDocument.new()
        document.new_page(595, 842)
        document.save(Path(folder) / "empty.pdf")
        document.close()
        for route in (Route.AUTO, Route.FLASH, Route.LAYOUT):
            request = WindowRequest(
                pdf=str(Path(folder) / "empty.pdf"),
                password=None,
                pages=(0,),
                store=folder,
                route=route,
                quality=Quality.STANDARD,
                threads=threads,
                markdown=True,
            )
            list(recognise_window(request))
    yield None


def assembly(argument: object) -> Iterator[None]:
    """For `pipeline.assemble`."""
    from pipeline.assemble import page_markdown

    with contextlib.suppress(Exception):
        page_markdown(PageModel(blocks=[], width_pt=595.0, height_pt=842.0))
    yield None
