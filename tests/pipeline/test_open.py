"""Preflight says what is wrong with a file, by a code that never changes, or accepts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageFile

from pipeline.document import SourceDocument, SourceKind
from pipeline.errors import PipelineError
from pipeline.open import OpenRequest, open_document
from tests.documents import pdf_with_a_broken_page, raw_pdf, sized_pdf, text_pdf


def preflight(path: Path, password: str | None = None, pages: str = "", **bounds: int) -> SourceDocument:
    limits = {"max_bytes": 2**30, "max_pages": 100, "max_page_pixels": 250_000_000, **bounds}
    scratch = str(path.parent / "scratch")
    request = OpenRequest(path=str(path), pages=pages, scratch=scratch, password=password, **limits)
    return next(iter(open_document(request)))


def code_of(path: Path, password: str | None = None, **bounds: int) -> str:
    with pytest.raises(PipelineError) as caught:
        preflight(path, password, **bounds)
    return caught.value.code


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_sound_pdf_is_accepted_with_its_hash_and_page_count(tmp_path: Path) -> None:
    document = preflight(text_pdf(tmp_path / "a.pdf", pages=3))
    assert (document.kind, document.page_count, document.bad_pages) == (SourceKind.PDF, 3, ())
    assert len(document.sha256) == 64


def test_a_missing_file_and_a_folder_are_unreadable(tmp_path: Path) -> None:
    assert code_of(tmp_path / "nowhere.pdf") == "unreadable_file"
    assert code_of(tmp_path) == "unreadable_file"


def test_an_empty_file(tmp_path: Path) -> None:
    assert code_of(written(tmp_path / "a.pdf", b"")) == "empty_file"


@pytest.mark.parametrize("data", [b"Dear sir,\nplease find attached", b"PK\x03\x04" + bytes(100), b"\x00" * 2000])
def test_something_else_under_the_name_of_a_pdf(tmp_path: Path, data: bytes) -> None:
    assert code_of(written(tmp_path / "a.pdf", data)) == "not_a_pdf"


def test_an_encrypted_pdf_wants_its_password(tmp_path: Path) -> None:
    path = text_pdf(tmp_path / "a.pdf", password="sesame")
    assert code_of(path) == "encrypted"
    assert code_of(path, "wrong") == "encrypted"
    assert preflight(path, "sesame").page_count == 1


def test_a_pdf_cut_off_in_its_header_is_damaged(tmp_path: Path) -> None:
    assert code_of(written(tmp_path / "a.pdf", b"%PDF-1.7\n%garbage and nothing else")) == "damaged"


def test_a_pdf_whose_page_tree_leads_nowhere_is_refused(tmp_path: Path) -> None:
    catalogue = b"<< /Type /Catalog /Pages 2 0 R >>"
    nowhere = raw_pdf([catalogue, b"<< /Type /Pages /Count 2 /Kids [8 0 R 9 0 R] >>"])
    assert code_of(written(tmp_path / "a.pdf", nowhere)) == "damaged"


def test_a_pdf_without_pages(tmp_path: Path) -> None:
    empty = raw_pdf([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 0 /Kids [] >>"])
    assert code_of(written(tmp_path / "a.pdf", empty)) == "no_pages"


def test_a_broken_page_is_named_and_does_not_condemn_the_others(tmp_path: Path) -> None:
    document = preflight(pdf_with_a_broken_page(tmp_path / "a.pdf"))
    assert document.page_count == 3
    assert [(page.index, page.code) for page in document.bad_pages] == [(1, "damaged")]


def test_limits_on_bytes_and_pages(tmp_path: Path) -> None:
    path = text_pdf(tmp_path / "a.pdf", pages=3)
    assert code_of(path, max_bytes=100) == "too_large"
    assert code_of(path, max_pages=2) == "too_many_pages"
    assert preflight(path, pages="2-3", max_pages=2).page_count == 3


def test_a_page_of_14400_points_is_too_big_to_render(tmp_path: Path) -> None:
    assert code_of(sized_pdf(tmp_path / "a.pdf", [(14_400, 14_400)])) == "page_too_big"
    document = preflight(sized_pdf(tmp_path / "b.pdf", [(14_400, 14_400), (600, 800)]))
    assert [(page.index, page.code) for page in document.bad_pages] == [(0, "page_too_big")]


@pytest.mark.parametrize(
    ("name", "mode", "size"),
    [("a.png", "RGB", (1, 1)), ("a.png", "RGBA", (40, 30)), ("a.jpg", "CMYK", (40, 30)), ("a.tif", "1", (40, 30))],
)
def test_images_become_one_page_each(tmp_path: Path, name: str, mode: str, size: tuple[int, int]) -> None:
    Image.new(mode, size).save(tmp_path / name)
    document = preflight(tmp_path / name)
    assert (document.kind, document.page_count) == (SourceKind.IMAGE, 1)


def test_every_frame_of_a_tiff_is_a_page(tmp_path: Path) -> None:
    frames = [Image.new("L", (60, 40), shade) for shade in (0, 100, 200)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    assert preflight(tmp_path / "a.tif").page_count == 3


def test_an_image_bomb_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (4000, 4000)).save(tmp_path / "a.png")
    assert code_of(tmp_path / "a.png", max_page_pixels=1_000_000) == "page_too_big"


def test_a_truncated_image_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A library of the engine, which other tests load into this process, makes Pillow accept such files.
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    Image.effect_noise((300, 300), 80).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    assert code_of(written(tmp_path / "b.png", data[: len(data) // 2])) == "damaged"
