"""The vlm route on a page: structure from the model, text from the file, and what happens when the model fails."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from pipeline.assemble import page_markdown
from pipeline.errors import EngineUnavailable, PipelineError
from pipeline.models import Models
from pipeline.page_model import PageModel
from pipeline.page_source import PageSource
from pipeline.routes.vlm import window
from pipeline.vlm_engine import VlmEngine
from tests.documents import drawn_pdf
from tests.pipeline.routes.pages import paragraph
from tests.pipeline.routes.scripted_vlm import MODEL, Block, How, Page, ScriptedVlm
from tests.pipeline.routes.vlm_pages import BLOCKS, LATEX, REPORT, ROWS, report, scan_of, with_block
from tests.pipeline.structure.build import grid, texts


@pytest.fixture(scope="module")
def pdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drawn_pdf(tmp_path_factory.mktemp("vlm") / "report.pdf", [report])


@pytest.fixture(scope="module")
def scan(pdf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scan_of(pdf, tmp_path_factory.mktemp("vlm") / "scan.pdf")


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(1)


@pytest.fixture(autouse=True)
def no_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports come again; what an earlier test's engine did is not remembered."""
    monkeypatch.setattr(window, "_outages", window._Outages())


def read(
    path: Path, script: ScriptedVlm, models: Models, *, trusted: bool, seconds: float = 60, **engine: object
) -> list[PageModel | PipelineError]:
    document = pypdfium2.PdfDocument(path)
    pages = [PageSource(document, index) for index in range(len(document))]
    asked = VlmEngine(**{"url": script.url, "request_seconds": 20.0, **engine})  # type: ignore[arg-type]
    trust = dict.fromkeys(range(len(document)), trusted)
    found = {page.index: made for page, made in window.recognise(pages, asked, trust, models, seconds)}
    return [found[index] for index in range(len(document))]


def page_of(
    path: Path, page: Page, models: Models, *, trusted: bool = False, seconds: float = 60, **engine: object
) -> tuple[PageModel, ScriptedVlm]:
    with ScriptedVlm(path, [page]) as script:
        (made,) = read(path, script, models, trusted=trusted, seconds=seconds, **engine)
    assert isinstance(made, PageModel), made
    return made, script


def failure(path: Path, page: Page, models: Models, **more: object) -> PipelineError:
    with ScriptedVlm(path, [page]) as script:
        (made,) = read(path, script, models, trusted=False, **more)  # type: ignore[arg-type]
    assert isinstance(made, PipelineError)
    return made


def kinds(page: PageModel) -> list[str]:
    return [block["type"] for block in page.blocks]


def one(page: PageModel, kind: str) -> dict[str, object]:
    (found,) = [block for block in page.blocks if block["type"] == kind]
    return found


def test_a_scan_becomes_what_the_model_says(scan: Path, models: Models) -> None:
    page, script = page_of(scan, REPORT, models)
    assert kinds(page) == ["doc_title", "text", "table", "equation", "image", "caption", "text", "page_number"]
    assert grid(one(page, "table")["content"]) == [list(row) for row in ROWS]
    assert one(page, "equation")["content"] == LATEX
    assert texts(page.blocks, "text") == [BLOCKS[1].answer, BLOCKS[6].answer]
    assert page.warnings == []
    assert sorted(script.kinds()) == sorted(
        ["Layout Detection:", "Table Recognition:", "Formula Recognition:", *["Text Recognition:"] * 5]
    )


def test_the_markdown_has_title_table_and_formula_in_order(scan: Path, models: Models) -> None:
    markdown = page_markdown(page_of(scan, REPORT, models)[0])
    places = [markdown.index(text) for text in ("# Mills", "Opening", "Grain", LATEX, "Figure 1", "Closing")]
    assert places == sorted(places)


def test_pictures_are_cut_out_of_the_page(scan: Path, models: Models) -> None:
    page, _ = page_of(scan, REPORT, models)
    uri = str(one(page, "image")["image_base64"])
    picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert picture.width / picture.height == pytest.approx(300 / 130, rel=0.05)


def test_text_of_a_born_digital_page_comes_from_the_file_and_is_not_asked_for(pdf: Path, models: Models) -> None:
    wrong = Page(tuple(replace(b, answer="MISREAD") if b.kind == "text" else b for b in BLOCKS))
    page, script = page_of(pdf, wrong, models, trusted=True)
    assert sorted(script.kinds()) == ["Formula Recognition:", "Layout Detection:", "Table Recognition:"]
    said = " ".join(texts(page.blocks))
    assert "MISREAD" not in said
    assert "Opening the river runs" in said and "Closing the river runs" in said
    assert kinds(page) == ["doc_title", "text", "table", "equation", "image", "caption", "text", "page_number"]
    assert grid(one(page, "table")["content"]) == [list(row) for row in ROWS]
    # The boxes of lines are those of the file, not one for the whole block.
    assert len(page.blocks[1]["lines"]) == 5


def test_text_that_no_block_claims_is_kept_in_its_place(pdf: Path, models: Models) -> None:
    missed = Page(tuple(b for b in BLOCKS if not b.answer.startswith("Closing")))
    page, _ = page_of(pdf, missed, models, trusted=True)
    markdown = page_markdown(page)
    assert markdown.index("Figure 1") < markdown.index("Closing the river")
    missed = Page(tuple(b for b in BLOCKS if not b.answer.startswith("Opening")))
    markdown = page_markdown(page_of(pdf, missed, models, trusted=True)[0])
    assert markdown.index("Mills of the valley") < markdown.index("Opening the river") < markdown.index("Upper")


def test_a_block_with_a_picture_of_text_is_read_on_a_born_digital_page(tmp_path: Path, models: Models) -> None:
    letters = Image.new("RGB", (600, 80), "white")
    letters.paste("black", (20, 20, 500, 40))
    letters.save(tmp_path / "letters.png")

    def draw(canvas: Canvas) -> None:
        paragraph(canvas, 60, 760, 470, 10, "Typed")
        canvas.drawImage(str(tmp_path / "letters.png"), 60, 500, 300, 40)

    path = drawn_pdf(tmp_path / "a.pdf", [draw])
    blocks = (Block("text", (55, 70, 540, 205), "MISREAD"), Block("text", (60, 302, 360, 342), "a stamp"))
    page, script = page_of(path, Page(blocks), models, trusted=True)
    assert script.kinds() == ["Layout Detection:", "Text Recognition:"]
    assert texts(page.blocks)[1] == "a stamp"
    assert texts(page.blocks)[0].startswith("Typed the river")


def test_a_garbled_font_is_read_though_the_rest_of_the_page_is_not(pdf: Path, models: Models) -> None:
    document = pypdfium2.PdfDocument(pdf)
    source = PageSource(document, 0)
    broken = [
        replace(line, text="\ufffd" * 5, words=tuple(replace(w, text="\ufffd" * 5) for w in line.words))
        if "Mills" in line.text
        else line
        for line in source.text.lines
    ]
    source.__dict__["text"] = replace(source.text, lines=tuple(broken))
    with ScriptedVlm(pdf, [REPORT]) as script:
        ((_, page),) = window.recognise([source], VlmEngine(script.url), {0: True}, models, 60)
    assert isinstance(page, PageModel)
    assert texts(page.blocks)[0] == "Mills of the valley"
    assert script.kinds().count("Text Recognition:") == 1


BAD = [How.TRUNCATED, How.LOOPING, How.STOPPED_LOOP, How.FAILING, How.REFUSED, How.BREAKING, How.EMPTY, How.NOT_JSON]


@pytest.mark.parametrize("how", BAD)
def test_a_table_that_fails_is_rebuilt_from_the_text_layer(pdf: Path, models: Models, how: How) -> None:
    page, _ = page_of(pdf, with_block("table", how=how), models, trusted=True)
    assert grid(one(page, "table")["content"]) == [list(row) for row in ROWS]
    (warning,) = page.warnings
    assert warning.startswith("Block 3 (table) is from the text layer: ")


@pytest.mark.parametrize("kind", ["table", "text"])
def test_a_block_of_a_scan_that_fails_is_read_by_ocr(scan: Path, models: Models, kind: str) -> None:
    page, _ = page_of(scan, with_block(kind, how=How.FAILING), models)
    if kind == "table":
        assert grid(one(page, "table")["content"]) == [list(row) for row in ROWS]
    else:
        assert "river runs along the valley" in texts(page.blocks, "text")[0]
    assert all(" is from OCR: the engine failed" in warning for warning in page.warnings)
    assert len(page.warnings) == (1 if kind == "table" else 2)


def test_a_formula_that_fails_is_shown_as_a_picture(scan: Path, models: Models) -> None:
    page, _ = page_of(scan, with_block("equation", how=How.REFUSED), models)
    formula = one(page, "equation")
    assert formula["content"] == "" and formula["image_base64"]
    (warning,) = page.warnings
    assert warning == "Block 4 (equation) is from a picture: the engine refused the question (400: not such a picture)."


def test_text_that_nobody_can_read_is_shown_as_a_picture(tmp_path: Path, models: Models) -> None:
    Image.effect_noise((300, 150), 120).convert("RGB").save(tmp_path / "noise.png")

    def draw(canvas: Canvas) -> None:
        canvas.drawImage(str(tmp_path / "noise.png"), 100, 500, 300, 150)

    path = drawn_pdf(tmp_path / "a.pdf", [draw])
    page, _ = page_of(path, Page((Block("text", (100, 192, 400, 342), "?", How.FAILING),)), models)
    assert kinds(page) == ["image"] and page.blocks[0]["image_base64"]
    assert "is from a picture" in page.warnings[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("a sentence about tables", "no table"),
        ("<fcel>wholly<fcel>other<nl><fcel>words<fcel>than<nl><fcel>are<fcel>there<nl>", "not what the page says"),
    ],
)
def test_a_table_that_the_model_makes_up_is_not_believed(pdf: Path, models: Models, answer: str, reason: str) -> None:
    page, _ = page_of(pdf, with_block("table", answer=answer), models, trusted=True)
    assert grid(one(page, "table")["content"]) == [list(row) for row in ROWS]
    assert reason in page.warnings[0]


def test_only_the_slow_block_is_given_up(scan: Path, models: Models) -> None:
    with ScriptedVlm(scan, [with_block("equation", how=How.SLOW)]) as script:
        (page,) = read(scan, script, models, trusted=False, request_seconds=2.0)
        (slow,) = [asked for asked in script.asked if asked.kind == "Formula Recognition:"]
        assert slow.withdrawn.wait(5), "the question was not withdrawn"
    assert isinstance(page, PageModel)
    assert grid(one(page, "table")["content"]) == [list(row) for row in ROWS]
    assert page.warnings == ["Block 4 (equation) is from a picture: no answer within 2 s."]


def test_a_loop_is_cut_off_and_withdrawn_long_before_its_end(scan: Path, models: Models) -> None:
    with ScriptedVlm(scan, [with_block("equation", how=How.LOOPING)]) as script:
        (page,) = read(scan, script, models, trusted=False)
        (looping,) = [asked for asked in script.asked if asked.kind == "Formula Recognition:"]
        assert looping.withdrawn.wait(5)
    assert isinstance(page, PageModel)
    assert "the answer repeated itself" in page.warnings[0]


GARBAGE = {
    "nothing but words": ("The quick brown fox.", "no box"),
    "empty": ("", "no box"),
    "out of range": (
        "<|box_start|>100 100 1900 1100<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>" * 8,
        "no box of the layout is one",
    ),
    "unknown types": (
        "".join(
            f"<|box_start|>100 {y:03d} 900 {y + 50:03d}<|box_end|><|ref_start|>{kind}<|ref_end|><|rotate_up|>"
            for y, kind in zip(range(100, 900, 60), ["text", "sonnet", "fugue", "gavotte"] * 4, strict=False)
        ),
        "boxes of the layout are boxes",
    ),
    "piled up": (
        "".join(
            f"<|box_start|>050 {50 + n:03d} 950 {900 + n:03d}<|box_end|><|ref_start|>{kind}<|ref_end|><|rotate_up|>"
            for n, kind in enumerate(["text", "title", "table", "list_item", "code"])
        ),
        "lie on each other",
    ),
    "far too many": (
        "".join(
            f"<|box_start|>{x:03d} {y:03d} {x + 8:03d} {y + 8:03d}<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>"
            for x in range(0, 990, 40)
            for y in range(0, 990, 40)
        ),
        "625 boxes",
    ),
    "beside everything": (
        "<|box_start|>010 950 050 990<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>",
        "of what is on the page",
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_layout_that_cannot_be_is_refused(scan: Path, models: Models, name: str) -> None:
    answer, reason = GARBAGE[name]
    error = failure(scan, Page(layout=answer), models)
    assert reason in error.message
    assert not isinstance(error, EngineUnavailable)


@pytest.mark.parametrize("how", [How.TRUNCATED, How.LOOPING, How.FAILING, How.BREAKING, How.NOT_JSON])
def test_a_page_without_a_layout_says_why(scan: Path, models: Models, how: How) -> None:
    error = failure(scan, Page(BLOCKS, how=how), models)
    assert error.message.startswith("no layout: ")
    assert not isinstance(error, EngineUnavailable)


def test_an_empty_layout_of_a_blank_page_is_right(tmp_path: Path, models: Models) -> None:
    path = drawn_pdf(tmp_path / "blank.pdf", [lambda canvas: None])
    page, _ = page_of(path, Page(layout=""), models)
    assert page.blocks == [] and page.warnings == []


def test_a_busy_engine_is_waited_for(scan: Path, models: Models) -> None:
    with ScriptedVlm(scan, [REPORT], busy=3) as script:
        (page,) = read(scan, script, models, trusted=False)
    assert isinstance(page, PageModel) and page.warnings == []


def test_an_engine_that_stays_busy_is_unavailable(scan: Path, models: Models) -> None:
    with ScriptedVlm(scan, [REPORT], busy=-1) as script:
        (error,) = read(scan, script, models, trusted=False, request_seconds=1.0)
    assert isinstance(error, EngineUnavailable) and "busy" in error.message


def test_an_engine_that_is_not_there_is_unavailable_and_not_asked_again_at_once(scan: Path, models: Models) -> None:
    with ScriptedVlm(scan, [REPORT]) as script:
        url = script.url
    engine = VlmEngine(url, model=MODEL)
    source = PageSource(pypdfium2.PdfDocument(scan), 0)
    for _ in range(2):
        started = time.monotonic()
        ((_, error),) = window.recognise([source], engine, {0: False}, models, 60)
        assert isinstance(error, EngineUnavailable) and error.code == "engine_unavailable"
        seconds = time.monotonic() - started
    assert seconds < 0.5


@pytest.mark.parametrize(("token", "enters"), [("right", True), ("wrong", False), (None, False)])
def test_the_token_is_sent(scan: Path, models: Models, token: str | None, enters: bool) -> None:
    with ScriptedVlm(scan, [REPORT], token="right") as script:
        (made,) = read(scan, script, models, trusted=False, api_key=token)
    assert isinstance(made, PageModel if enters else EngineUnavailable)
    assert "right" not in repr(VlmEngine(script.url, api_key="right"))


def test_a_server_that_does_not_stream_will_do(scan: Path, models: Models) -> None:
    with ScriptedVlm(scan, [REPORT], streams=False) as script:
        (page,) = read(scan, script, models, trusted=False)
    assert isinstance(page, PageModel) and page.warnings == []
    assert one(page, "equation")["content"] == LATEX


def test_answers_may_be_as_long_as_their_place_is_large(scan: Path, models: Models) -> None:
    _, script = page_of(scan, REPORT, models)
    bounds = {asked.block: asked.body["max_tokens"] for asked in script.asked}
    assert all(asked.body["max_tokens"] == asked.body["max_completion_tokens"] for asked in script.asked)
    title, paragraph_, table = bounds[0], bounds[1], bounds[2]
    assert 100 <= title < paragraph_ < table < 3000


@pytest.mark.parametrize("bound", [1, 3])
def test_no_more_questions_are_under_way_than_allowed(scan: Path, models: Models, bound: int) -> None:
    page, script = page_of(scan, REPORT, models, concurrency=bound)
    assert page.warnings == []
    assert script.most_under_way <= bound


def test_pages_of_a_window_do_not_wait_for_a_slow_one(tmp_path: Path, models: Models) -> None:
    words = ["first", "second", "third"]
    draw: list[Callable[[Canvas], None]] = [
        lambda canvas, n=n: paragraph(canvas, 60 + 30 * n, 760 - 150 * n, 400, 12, words[n]) for n in range(3)
    ]
    path = drawn_pdf(tmp_path / "three.pdf", draw)
    box = [(55 + 30 * n, 70 + 150 * n, 470 + 30 * n, 225 + 150 * n) for n in range(3)]
    pages = [Page((Block("text", box[n], words[n]),), how=How.SLOW if n == 0 else How.GOOD) for n in range(3)]
    document = pypdfium2.PdfDocument(path)
    sources = [PageSource(document, n) for n in range(3)]
    with ScriptedVlm(path, pages) as script:
        engine = VlmEngine(script.url, model=MODEL, request_seconds=4)
        made = list(window.recognise(sources, engine, dict.fromkeys(range(3), False), models, 60))
    assert [page.index for page, _ in made][-1] == 0
    assert [isinstance(result, PageModel) for _, result in made] == [True, True, False]
    assert "no layout: no answer within 4 s" in str(made[-1][1])


def test_who_stops_reading_withdraws_every_question(tmp_path: Path, models: Models) -> None:
    path = drawn_pdf(tmp_path / "two.pdf", [lambda c: paragraph(c, 60, 760, 470, 9, "one"), report])
    quick = Page((Block("text", (55, 70, 540, 190), "one"),))
    slow = Page(tuple(replace(block, how=How.SLOW) for block in BLOCKS))
    document = pypdfium2.PdfDocument(path)
    sources = [PageSource(document, n) for n in range(2)]
    with ScriptedVlm(path, [quick, slow]) as script:
        pages = window.recognise(sources, VlmEngine(script.url, model=MODEL), {0: False, 1: False}, models, 60)
        assert isinstance(next(pages)[1], PageModel)
        # Both pages' layouts and blocks, none of the second page's answered.
        script.wait_for(2 + 1 + 7)
        pages.close()
        slow_ones = [asked for asked in script.asked if asked.page == 1 and asked.block is not None]
        assert len(slow_ones) == 7
        assert all(asked.withdrawn.wait(5) for asked in slow_ones)


def test_the_time_for_a_page_bounds_all_its_questions_together(scan: Path, models: Models) -> None:
    slow = Page(tuple(replace(block, how=How.SLOW) for block in BLOCKS))
    started = time.monotonic()
    page, _ = page_of(scan, slow, models, seconds=5, concurrency=1)
    # Three fifths of it for the engine, though each of seven questions in turn might take as long.
    assert time.monotonic() - started < 20
    assert len(page.warnings) == 7
    assert any("the time for the page was over" in warning for warning in page.warnings)


GROUP = (265, 318, 325, 366)
HALVES = ((266, 320, 324, 341), (266, 343, 324, 364))


@pytest.mark.parametrize("how", [How.GOOD, How.REFUSED])
def test_a_formula_of_two_lines_is_one_or_two_pictures_and_hurts_no_table(scan: Path, models: Models, how: How) -> None:
    halves = (Block("equation", HALVES[0], "x"), Block("equation", HALVES[1], "y", how))
    blocks = (*(b for b in BLOCKS if b.kind != "equation"), Block("equation_block", GROUP), *halves)
    page, _ = page_of(scan, Page(blocks), models)
    formulas = [block for block in page.blocks if block["type"] == "equation"]
    assert grid(one(page, "table")["content"]) == [list(row) for row in ROWS]
    if how is How.GOOD:
        assert len(formulas) == 1 and page.warnings == []
    else:
        assert [formula["content"] for formula in formulas] == ["x", ""]
        assert len(page.warnings) == 1 and formulas[1]["image_base64"]
