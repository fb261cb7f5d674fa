"""What can go wrong with one document, each with a code that never changes.

The code is the contract: the command line maps it to an exit status, a service maps it to an HTTP status.
The message is for the person: one sentence that says what to do.
"""

from __future__ import annotations

import errno
from typing import ClassVar


class PipelineError(Exception):
    """Base of every error that the pipeline raises on purpose.

    Attributes:
        code: stable identifier, snake case.
        bad_input: True if the document itself is the cause, so that trying again cannot help.
    """

    code: ClassVar[str] = "pipeline_error"
    bad_input: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[type[PipelineError], tuple[str]]:
        # Errors cross process borders; the default would pass the message through __init__ of a
        # subclass with another signature.
        return type(self), (self.message,)


class BadInput(PipelineError):
    """The document cannot be parsed as it is."""

    bad_input = True


class EmptyFile(BadInput):
    code = "empty_file"


class NotAPdf(BadInput):
    code = "not_a_pdf"


class Encrypted(BadInput):
    code = "encrypted"


class Damaged(BadInput):
    code = "damaged"


class TooLarge(BadInput):
    code = "too_large"


class TooManyPages(BadInput):
    code = "too_many_pages"


class PageTooBig(BadInput):
    code = "page_too_big"


class NoPages(BadInput):
    code = "no_pages"


class BadPageRange(BadInput):
    code = "bad_page_range"


class UnreadableFile(BadInput):
    """The file is missing, is a folder, or may not be read."""

    code = "unreadable_file"


class PageFailed(PipelineError):
    """One page could not be parsed; the rest of its document is not affected."""

    code = "page_failed"


class PageTimeout(PageFailed):
    code = "page_timeout"


class PageOutOfMemory(PageFailed):
    code = "page_out_of_memory"


class PageCrashed(PageFailed):
    """The process that worked on the page died."""

    code = "page_crashed"


class RouteUnavailable(PipelineError):
    """A route needs a package that is not installed, or an engine and none is configured."""

    code = "route_unavailable"


class EngineUnavailable(PipelineError):
    """The engine that a route needs does not answer, is too busy, or refuses. Trying again later may help."""

    code = "engine_unavailable"


class OutputBusy(PipelineError):
    """Another run is writing the same document into the same folder."""

    code = "output_busy"


class OutputNotWritable(PipelineError):
    code = "output_not_writable"


class DiskFull(PipelineError):
    code = "disk_full"

    @classmethod
    def if_caused_by(cls, error: OSError) -> DiskFull | None:
        """The typed error, if that is what the operating system's error means."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        return cls("The disk is full. Free some space and run the same command again: finished pages are kept.")


class Cancelled(PipelineError):
    code = "cancelled"
