"""A folder of documents into a folder of results: listed first, resumable at any point, counted to the last file.

May import: `pipeline`, the job and artifact stores. Must not know: the command line, the REST service's code.

    scan      which files there are
    manifest  what is known about each, in an SQLite file below the output folder
    run       one run: scan -> manifest -> work -> summary; with `watch`, again whenever something changes
    local, queued, remote   the three ways to get the work done: here, by workers of a job store, by a service
"""

from workers.ingest.errors import IngestError
from workers.ingest.run import Ingestion
from workers.ingest.scan import Selection
from workers.ingest.types import FileEnded, FileOpened, FilePages, FileState, IngestEvent, Listed, Summary

__all__ = [
    "FileEnded",
    "FileOpened",
    "FilePages",
    "FileState",
    "IngestError",
    "IngestEvent",
    "Ingestion",
    "Listed",
    "Selection",
    "Summary",
]
