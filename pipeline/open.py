"""Preflight: from a path to a `SourceDocument`, or to a typed error that says what is wrong with the file.

Runs in a page process, since it is the first to hand the untrusted bytes to pdfium and Pillow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pypdfium2

from pipeline import errors
from pipeline.document import BadPage, SourceDocument, SourceKind
from pipeline.images import is_image, pdf_from_image
from pipeline.page_range import select_pages
from pipeline.page_source import RENDER_DPI

_PDF_HEADER_WITHIN = 1024
"""Readers accept a PDF header anywhere in the first 1,024 bytes (PDF 1.7, annex H, note 13)."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A file to open.

    Attributes:
        path: of the input.
        pages: the selection asked for, as in `ParseOptions.pages`; the bounds below hold for these pages.
        password: to try if the PDF is encrypted.
        scratch: a folder for the PDF made of an input image.
        max_bytes, max_pages: bounds on the file and the document.
        max_page_pixels: bound on one page at RENDER_DPI.
    """

    path: str
    pages: str
    scratch: str
    password: str | None
    max_bytes: int
    max_pages: int
    max_page_pixels: int


def open_document(request: OpenRequest) -> Iterator[SourceDocument]:
    """Yield the one document (an iterator, as page processes want it).

    Raises:
        UnreadableFile, EmptyFile, TooLarge, NotAPdf, Encrypted, Damaged, NoPages, BadPageRange, TooManyPages,
        PageTooBig.
    """
    path = Path(request.path)
    sha256, size = _read_whole(path, request.max_bytes)
    kind = _kind(path)
    source = path
    if kind is SourceKind.IMAGE:
        source = pdf_from_image(path, Path(request.scratch) / "source.pdf", request.max_page_pixels)
    pdf = open_pdf(source, request.password)
    try:
        bad_pages = _check_pages(pdf, request)
        yield SourceDocument(
            path=str(source),
            kind=kind,
            sha256=sha256,
            size_bytes=size,
            page_count=len(pdf),
            bad_pages=tuple(bad_pages),
            password=request.password,
        )
    finally:
        pdf.close()


def open_pdf(path: Path | str, password: str | None) -> pypdfium2.PdfDocument:
    """Open a PDF with pdfium, with its errors made ours."""
    try:
        return pypdfium2.PdfDocument(path, password=password)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise errors.Encrypted(
                "The PDF is encrypted and the password does not open it."
                if password
                else "The PDF is encrypted. Give its password with --password."
            ) from None
        if _has_no_pages(path):
            raise errors.NoPages("The document has no pages.") from None
        raise errors.Damaged(
            f"The PDF is damaged beyond repair ({error}). Open and save it with another program, then try again."
        ) from None


def _has_no_pages(path: Path | str) -> bool:
    """Whether a PDF that pdfium will not open is a sound one without pages; pdfium calls both damaged."""
    from pypdf import PdfReader

    try:
        return len(PdfReader(path, strict=True).pages) == 0
    except Exception:  # noqa: BLE001 - any surprise in a file that pdfium refused means that it is damaged
        return False


def _read_whole(path: Path, max_bytes: int) -> tuple[str, int]:
    """Hash the file, so that unreadable, empty and oversized ones end here."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise errors.TooLarge(
                f"The file has {size / 2**20:,.0f} MiB; the limit is {max_bytes / 2**20:,.0f} (PAGEMILL_MAX_FILE_MB)."
            )
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise errors.UnreadableFile(f"Cannot read the file: {error.strerror or error}.") from None
    if size == 0:
        raise errors.EmptyFile("The file is empty (0 bytes).")
    return digest, size


def _kind(path: Path) -> SourceKind:
    with path.open("rb") as file:
        head = file.read(_PDF_HEADER_WITHIN)
    if b"%PDF-" in head:
        return SourceKind.PDF
    if is_image(path):
        return SourceKind.IMAGE
    raise errors.NotAPdf("The file is neither a PDF nor an image (PNG, JPEG, TIFF), whatever its name says.")


def _check_pages(pdf: pypdfium2.PdfDocument, request: OpenRequest) -> list[BadPage]:
    """Find the pages asked for that cannot be parsed; raise if that is all of them."""
    count = len(pdf)
    if count == 0:
        raise errors.NoPages("The document has no pages.")
    wanted = select_pages(request.pages, count)
    if len(wanted) > request.max_pages:
        raise errors.TooManyPages(
            f"{len(wanted):,} pages are too many; the limit is {request.max_pages:,} (PAGEMILL_MAX_PAGES). "
            "Take a part of the document with --pages, or raise the limit."
        )
    bad = [problem for index in wanted if (problem := _check_page(pdf, index, request.max_page_pixels))]
    if len(bad) == len(wanted):
        kind = errors.PageTooBig if bad[0].code == errors.PageTooBig.code else errors.Damaged
        raise kind(bad[0].message)
    return bad


def _check_page(pdf: pypdfium2.PdfDocument, index: int, max_pixels: int) -> BadPage | None:
    try:
        width, height = pdf.get_page_size(index)
    except pypdfium2.PdfiumError as error:
        return BadPage(index, errors.Damaged.code, f"Page {index + 1} is damaged ({error}).")
    pixels = width * height * (RENDER_DPI / 72) ** 2
    if pixels > max_pixels:
        message = (
            f"Page {index + 1} measures {width:,.0f} x {height:,.0f} points, which is {pixels / 1e6:,.0f} megapixels "
            f"at {RENDER_DPI} dpi; the limit is {max_pixels / 1e6:,.0f} (PAGEMILL_MAX_PAGE_MEGAPIXELS)."
        )
        return BadPage(index, errors.PageTooBig.code, message)
    return None
