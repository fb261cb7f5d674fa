"""Documents where an engine is configured: who goes to it, what is recorded, and what its absence costs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from pipeline import DocumentFinished, ParsedDocument, ParseOptions, Status, stream
from pipeline.errors import Cancelled, EngineUnavailable, RouteUnavailable
from pipeline.page_model import Route
from pipeline.processes import PageProcesses
from pipeline.settings import settings
from pipeline.vlm_engine import VlmEngine, check_health, configured_engine, model_name
from tests.documents import drawn_pdf
from tests.pipeline.routes.scripted_vlm import MODEL, Block, How, Page, ScriptedVlm
from tests.pipeline.routes.vlm_pages import BLOCKS, HEIGHT, LATEX, REPORT, prose, report, scan_of

Set = Callable[[str, str], None]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prose; a report with a table and a formula; the same as a scan."""
    folder = tmp_path_factory.mktemp("mixed")
    scan = scan_of(drawn_pdf(folder / "report.pdf", [report]), folder / "scan.pdf")
    import pypdfium2

    picture = pypdfium2.PdfDocument(scan)[0].render(scale=200 / 72).to_pil()

    def scanned(canvas: Canvas) -> None:
        canvas.drawImage(ImageReader(picture), 0, 0, 595.28, HEIGHT)

    return drawn_pdf(folder / "mixed.pdf", [prose("Prose"), report, scanned])


PAGES = [Page(), REPORT, REPORT]


def finish(path: Path, output: Path, processes: PageProcesses, **options: object) -> ParsedDocument:
    events = stream(path, output, ParseOptions(**options), processes=processes)  # type: ignore[arg-type]
    return [event.document for event in events if isinstance(event, DocumentFinished)][-1]


def use(set_limit: Set, script: ScriptedVlm, **more: str) -> None:
    set_limit("PAGEMILL_ENGINE_URL", script.url)
    for name, value in more.items():
        set_limit(f"PAGEMILL_{name.upper()}", value)
    settings.cache_clear()


@pytest.fixture
def dead(set_limit: Set, mixed: Path) -> None:
    """An engine is configured, and nothing listens there."""
    with ScriptedVlm(mixed, PAGES) as script:
        pass
    use(set_limit, script)


def test_pages_go_to_the_engine_that_gain_by_it_and_the_others_stay(
    mixed: Path, tmp_path: Path, processes: PageProcesses, set_limit: Set
) -> None:
    with ScriptedVlm(mixed, PAGES) as script:
        use(set_limit, script)
        document = finish(mixed, tmp_path, processes)
    assert [(page.route, page.why) for page in document.pages] == [
        (Route.LAYOUT, "sound text layer"),
        (Route.VLM, "sound text layer with tables and formulas"),
        (Route.VLM, "no text layer"),
    ]
    assert document.status is Status.DONE and not any(page.warnings for page in document.pages)
    assert {asked.page for asked in script.asked} == {1, 2}
    assert document.markdown.count(LATEX) == 2
    assert document.markdown.count("# Mills of the valley") == 2
    assert json.loads((document.folder / "manifest.json").read_text())["job"]["engine"] == {"model": MODEL}
    middle = json.loads(next(document.folder.glob("*_middle.json")).read_text())
    assert len(middle["pages"]) == 3


def test_the_route_can_be_asked_for_on_every_page(
    mixed: Path, tmp_path: Path, processes: PageProcesses, set_limit: Set
) -> None:
    first = Page((Block("text", (55, 70, 540, 300), "not asked for"),))
    with ScriptedVlm(mixed, [first, REPORT, REPORT]) as script:
        use(set_limit, script)
        document = finish(mixed, tmp_path, processes, route="vlm")
    assert [page.route for page in document.pages] == [Route.VLM] * 3
    assert {page.why for page in document.pages} == {"asked for"}
    assert "Prose the river" in document.markdown


def test_without_an_engine_the_route_is_refused_before_any_work(
    mixed: Path, tmp_path: Path, processes: PageProcesses
) -> None:
    with pytest.raises(RouteUnavailable, match="PAGEMILL_ENGINE_URL"):
        finish(mixed, tmp_path / "out", processes, route="vlm")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model", ["", MODEL])
def test_an_engine_that_is_away_is_an_error_of_its_own_and_the_same_command_goes_on_later(
    mixed: Path, tmp_path: Path, processes: PageProcesses, set_limit: Set, dead: None, model: str
) -> None:
    set_limit("PAGEMILL_ENGINE_MODEL", model)
    settings.cache_clear()
    with pytest.raises(EngineUnavailable) as caught:
        finish(mixed, tmp_path, processes, route="vlm", pages="2-3")
    assert caught.value.code == "engine_unavailable"
    with ScriptedVlm(mixed, PAGES) as script:
        use(set_limit, script)
        assert finish(mixed, tmp_path, processes, route="vlm", pages="2-3").status is Status.DONE


def test_auto_does_without_an_engine_that_is_away_and_says_so(
    mixed: Path, tmp_path: Path, processes: PageProcesses, dead: None
) -> None:
    document = finish(mixed, tmp_path, processes)
    assert [page.route for page in document.pages] == [Route.LAYOUT, Route.LAYOUT, Route.OCR]
    assert document.status is Status.DONE
    for page in document.pages[1:]:
        assert page.why.startswith("vlm failed (The engine at ")
        assert any("Route vlm failed" in warning for warning in page.warnings)
    assert "river runs along the valley" in document.markdown


@pytest.mark.parametrize("route", ["auto", "vlm"])
def test_a_page_with_a_garbage_layout_goes_where_it_would_go_without_an_engine(
    mixed: Path, tmp_path: Path, processes: PageProcesses, set_limit: Set, route: str
) -> None:
    with ScriptedVlm(mixed, [Page(), Page(layout="no boxes, sorry"), REPORT]) as script:
        use(set_limit, script)
        document = finish(mixed, tmp_path, processes, route=route, pages="2-3")
    assert [page.route for page in document.pages] == [Route.LAYOUT, Route.VLM]
    assert document.pages[0].why == "vlm failed (the layout has no box), sound text layer"
    assert document.pages[0].warnings[0] == "Route vlm failed (the layout has no box)."


def test_an_engine_that_dies_in_the_middle_of_a_page_costs_the_route_and_not_the_page(
    mixed: Path, tmp_path: Path, processes: PageProcesses, set_limit: Set
) -> None:
    slow = Page(tuple(replace(block, how=How.SLOW) for block in BLOCKS))
    script = ScriptedVlm(mixed, [Page(), slow, slow])
    with script:
        use(set_limit, script)
        ends: list[ParsedDocument] = []
        reader = threading.Thread(target=lambda: ends.append(finish(mixed, tmp_path, processes, pages="2")))
        reader.start()
        script.wait_for(3, 60)
    reader.join(60)
    (document,) = ends
    assert document.status is Status.DONE
    assert document.pages[0].route is Route.LAYOUT or document.pages[0].warnings


def test_cancelling_withdraws_every_question_within_two_seconds(mixed: Path, tmp_path: Path, set_limit: Set) -> None:
    slow = Page(tuple(replace(block, how=How.SLOW) for block in BLOCKS))
    cancelled = threading.Event()
    with ScriptedVlm(mixed, [Page(), slow, slow]) as script, PageProcesses(1) as own:
        use(set_limit, script)
        caught: list[BaseException] = []

        def read() -> None:
            try:
                list(
                    stream(
                        mixed, tmp_path, ParseOptions(route=Route.VLM, pages="3"), processes=own, cancelled=cancelled
                    )
                )
            except Cancelled as error:
                caught.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        script.wait_for(8, 60)
        blocks = [asked for asked in list(script.asked) if asked.block is not None]
        at = time.monotonic()
        cancelled.set()
        assert all(asked.withdrawn.wait(2) for asked in blocks)
        assert time.monotonic() - at < 2
        reader.join(20)
    assert len(caught) == 1 and not reader.is_alive()


def test_a_page_deadline_leaves_time_for_another_route(
    mixed: Path, tmp_path: Path, processes: PageProcesses, set_limit: Set
) -> None:
    stuck = Page(BLOCKS, how=How.SLOW)
    with ScriptedVlm(mixed, [Page(), stuck, REPORT]) as script:
        use(set_limit, script, page_seconds="15", engine_seconds="100")
        document = finish(mixed, tmp_path, processes, pages="2")
    assert document.status is Status.DONE and document.pages[0].route is Route.LAYOUT
    assert "no layout: no answer within 9 s" in document.pages[0].warnings[0]


def test_another_model_is_another_job(mixed: Path, tmp_path: Path, processes: PageProcesses, set_limit: Set) -> None:
    with ScriptedVlm(mixed, PAGES) as script:
        use(set_limit, script, engine_model="one")
        assert not finish(mixed, tmp_path, processes, pages="2").unchanged
        assert finish(mixed, tmp_path, processes, pages="2").unchanged
        assert {asked.body["model"] for asked in script.asked} == {"one"}
        use(set_limit, script, engine_model="two")
        assert not finish(mixed, tmp_path, processes, pages="2").unchanged
        asked = len(script.asked)
        # A route that has no use for an engine does not care.
        assert not finish(mixed, tmp_path, processes, pages="2", route="layout").unchanged
        use(set_limit, script, engine_model="three")
        assert finish(mixed, tmp_path, processes, pages="2", route="layout").unchanged
        assert len(script.asked) == asked


@pytest.mark.parametrize(
    "address", ["engine:8000", "ftp://engine", "http://", "http://user:secret@engine", "http://engine/?a=b"]
)
def test_an_address_that_is_none_is_refused(set_limit: Set, address: str) -> None:
    set_limit("PAGEMILL_ENGINE_URL", address)
    with pytest.raises(ValueError, match="engine_url"):
        settings()


@pytest.mark.parametrize("address", ["http://engine:8000", "http://engine:8000/", "http://engine:8000/v1/"])
def test_an_address_may_end_as_those_of_openai_do(set_limit: Set, address: str) -> None:
    set_limit("PAGEMILL_ENGINE_URL", address)
    engine = configured_engine()
    assert engine is not None and engine.url == "http://engine:8000"


def test_the_health_of_an_engine_is_what_its_canary_says(mixed: Path) -> None:
    with ScriptedVlm(mixed, PAGES) as script:
        engine = VlmEngine(script.url)
        assert check_health(engine) == "2 of 2 instances usable, last canary 1 s ago"
        assert model_name(engine) == MODEL
        script.healthy = False
        with pytest.raises(EngineUnavailable, match="503"):
            check_health(engine)
    with pytest.raises(EngineUnavailable, match="does not answer"):
        check_health(engine)
    assert model_name(VlmEngine("http://127.0.0.1:9", model="named")) == "named"
