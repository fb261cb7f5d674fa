"""One document: open -> pages -> route -> recognise -> assemble -> render.

Lives here: everything about a document and its pages. May import: `engine`. Must not know: Celery, job
stores, HTTP, the command line.

As a library: `from pipeline import ParseOptions, parse; parse("a.pdf", "out")`.
"""

from pipeline.errors import PipelineError
from pipeline.events import DocumentFinished, DocumentOpened, Event, PageFinished, ParsedDocument
from pipeline.manifest import Manifest, Status
from pipeline.options import ParseOptions
from pipeline.page_model import Quality, Route
from pipeline.page_store import PageRecord
from pipeline.parse import page_processes, parse, stream

__all__ = [
    "DocumentFinished",
    "DocumentOpened",
    "Event",
    "Manifest",
    "PageFinished",
    "PageRecord",
    "ParseOptions",
    "ParsedDocument",
    "PipelineError",
    "Quality",
    "Route",
    "Status",
    "page_processes",
    "parse",
    "stream",
]
