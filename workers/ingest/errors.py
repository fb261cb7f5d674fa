"""What ends a whole ingestion, and which failures of one file may pass by themselves."""

from __future__ import annotations

from pipeline.errors import BadInput, PipelineError

PASSING = frozenset(
    {
        "artifact_store_unavailable",
        "cancelled",
        "disk_full",
        "output_busy",
        "output_not_writable",
        "queue_full",
        "quota_exceeded",
        "rate_limited",
        "route_unavailable",
        "server_unavailable",
        "unauthorized",
        "unavailable",
        "unreadable_file",
        "worker_lost",
    }
)
"""Codes of failures that say nothing about the document: the next run tries such files again without being told."""


class IngestError(PipelineError):
    """The ingestion cannot begin or go on."""

    code = "ingest_error"


class ServerUnavailable(IngestError):
    """The service does not answer, or answers what it should not."""

    code = "server_unavailable"


def is_bad_input(code: str | None) -> bool:
    """Whether a code, of a service or of this machine, means that the file itself is at fault."""
    return code == "payload_too_large" or code in {kind.code for kind in BadInput.__subclasses__()}
