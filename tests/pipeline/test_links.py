"""Only addresses that a reader may follow become links."""

from __future__ import annotations

from pathlib import Path

import pypdfium2
import pytest
from reportlab.pdfgen.canvas import Canvas

from pipeline.links import read_links, safe_address
from tests.documents import drawn_pdf


@pytest.mark.parametrize("text", ["https://river.example/a?b=c#d", "http://river.example", "mailto:mill@river.example"])
def test_addresses_are_kept(text: str) -> None:
    assert safe_address(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "http://[::1",
        "https://a b",
        "https://a/<b>",
        "mailto:x",
        "",
    ],
)
def test_what_is_no_address_or_unsafe_is_dropped(text: str) -> None:
    assert safe_address(text) is None


@pytest.mark.parametrize("rotation", [0, 90])
def test_links_lie_where_the_page_shows_them(tmp_path: Path, rotation: int) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.linkURL("https://river.example", (60, 700, 160, 720))
        canvas.linkURL("javascript:alert(1)", (60, 600, 160, 620))

    page = pypdfium2.PdfDocument(drawn_pdf(tmp_path / "links.pdf", [draw]))[0]
    page.set_rotation(rotation)
    (link,) = read_links(page)
    height = page.get_height()
    expected = (60, height - 720, 160, height - 700) if rotation == 0 else (700, 60, 720, 160)
    assert link.bbox == pytest.approx(expected, abs=0.1)
    assert link.url == "https://river.example"
