"""Where a page links to: the web addresses that its annotations carry."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import pypdfium2
import pypdfium2.raw as pdfium_c

from pipeline.characters import view_transform
from pipeline.page_model import BBox

MAX_LINKS = 2000
MAX_ADDRESS = 2048
"""Links looked at on a page, and bytes of an address; what goes beyond is not meant for readers."""

_ADDRESS = re.compile(r"^(?:https?://|mailto:)[\x21\x23-\x3b\x3d\x3f-\x5b\x5d-\x7e]+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Link:
    """An address and its place, points of the page as displayed."""

    bbox: BBox
    url: str


def read_links(page: pypdfium2.PdfPage) -> list[Link]:
    """The links of `page` to the web and to mailboxes; others, and malformed ones, are left out."""
    to_view = view_transform(page)
    position = ctypes.c_int(0)
    link = pdfium_c.FPDF_LINK()
    links: list[Link] = []
    for _ in range(MAX_LINKS):
        if not pdfium_c.FPDFLink_Enumerate(page.raw, position, link):
            break
        url = _address(page.pdf, link)
        rect = pdfium_c.FS_RECTF()
        if url and pdfium_c.FPDFLink_GetAnnotRect(link, rect):
            low, high = sorted((rect.bottom, rect.top))
            links.append(Link(to_view(rect.left, low, rect.right, high), url))
    return links


def _address(document: pypdfium2.PdfDocument, link: object) -> str | None:
    action = pdfium_c.FPDFLink_GetAction(link)
    if not action or pdfium_c.FPDFAction_GetType(action) != pdfium_c.PDFACTION_URI:
        return None
    size = pdfium_c.FPDFAction_GetURIPath(document.raw, action, None, 0)
    if not 1 < size <= MAX_ADDRESS:
        return None
    buffer = ctypes.create_string_buffer(size)
    pdfium_c.FPDFAction_GetURIPath(document.raw, action, buffer, size)
    return safe_address(buffer.value.decode("utf-8", "replace"))


def safe_address(text: str) -> str | None:
    """`text` if it is a well-formed address that a reader may follow, else None."""
    text = text.strip()
    if not _ADDRESS.match(text):
        return None
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) if parts.scheme.lower() != "mailto" else "@" in parts.path
    except ValueError:
        return None
    return text if named else None
