"""An accepted document: what preflight found out about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SourceKind(StrEnum):
    PDF = "pdf"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class BadPage:
    """A page that preflight refused. `index` counts from 0; `code` is the code of a `PipelineError`."""

    index: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document that passed preflight.

    Attributes:
        path: the PDF to read pages from: the input itself, or the PDF made of an input image.
        kind: what the input was.
        sha256: of the input's bytes, hex.
        size_bytes: of the input.
        page_count: pages of the whole document.
        bad_pages: pages that cannot be parsed; the others can.
        password: needed to open `path`; None where it is not encrypted.
    """

    path: str
    kind: SourceKind
    sha256: str
    size_bytes: int
    page_count: int
    bad_pages: tuple[BadPage, ...] = ()
    password: str | None = None
