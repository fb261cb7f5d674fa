"""An image becomes a page pixel for pixel, the way a person sees it."""

from __future__ import annotations

from pathlib import Path

import pypdfium2
import pytest
from PIL import Image, ImageChops

from pipeline.images import pdf_from_image
from pipeline.page_source import PageSource


def rendered(path: Path) -> Image.Image:
    pdf = pypdfium2.PdfDocument(pdf_from_image(path, path.parent / "page.pdf", 10**8))
    try:
        return PageSource(pdf, 0).image
    finally:
        pdf.close()


def test_a_page_renders_to_the_pixels_of_its_image(tmp_path: Path) -> None:
    image = Image.effect_noise((120, 80), 60).convert("RGB")
    image.save(tmp_path / "a.png", dpi=(72, 72))
    page = rendered(tmp_path / "a.png")
    assert page.size == image.size
    assert max(high for _, high in ImageChops.difference(page, image).getextrema()) <= 2


def test_a_photo_is_turned_as_its_exif_says(tmp_path: Path) -> None:
    image = Image.new("RGB", (60, 40), "white")
    image.paste("black", (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it turned by 90 degrees clockwise
    image.save(tmp_path / "a.jpg", exif=exif, quality=95)
    page = rendered(tmp_path / "a.jpg")
    assert page.size == (40, 60)
    assert page.getpixel((30, 10))[0] < 60 < 200 < page.getpixel((10, 50))[0]


def test_transparency_is_white(tmp_path: Path) -> None:
    Image.new("RGBA", (20, 20), (0, 0, 0, 0)).save(tmp_path / "a.png")
    assert rendered(tmp_path / "a.png").getpixel((10, 10)) == (255, 255, 255)


@pytest.mark.parametrize("mode", ["I;16", "CMYK", "1", "P", "LA"])
def test_unusual_pixel_formats_keep_their_light_and_dark(tmp_path: Path, mode: str) -> None:
    white = {"I;16": 65535, "CMYK": (0, 0, 0, 0), "1": 1, "P": 255, "LA": (255, 255)}[mode]
    black = {"I;16": 0, "CMYK": (0, 0, 0, 255), "1": 0, "P": 0, "LA": (0, 255)}[mode]
    image = Image.new(mode, (40, 20), white)
    if mode == "P":
        image.putpalette([value for grey in range(256) for value in (grey, grey, grey)])
    image.paste(black, (0, 0, 20, 20))
    suffix = "jpg" if mode == "CMYK" else "tif" if mode == "I;16" else "png"
    image.save(tmp_path / f"a.{suffix}")
    page = rendered(tmp_path / f"a.{suffix}")
    assert page.getpixel((5, 10))[0] < 40
    assert page.getpixel((35, 10))[0] > 215
