"""A document through router, prefill and decode instance, with a model that knows nothing.

What such a model writes is no layout, so every page has to end where it would go without an engine, soon, with the
reason; and afterwards the engine holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.random_checkpoint import write_checkpoint
from engine.role import Role
from engine.router.local_stack import LocalStack
from pipeline import DocumentFinished, ParsedDocument, ParseOptions, Status, stream
from pipeline.page_model import Route
from pipeline.processes import PageProcesses
from pipeline.settings import settings
from pipeline.vlm_engine import VlmEngine, check_health, listed_models
from tests.documents import drawn_pdf
from tests.pipeline.routes.vlm_pages import prose, report, scan_of

# Looked for and not imported: it changes settings of Pillow for the whole process.
pytestmark = pytest.mark.skipif(
    find_spec("lmdeploy") is None, reason="LMDeploy is not installed: see requirements/engine.txt"
)

Set = Callable[[str, str], None]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    folder = tmp_path_factory.mktemp("random-model")
    write_checkpoint(folder, "qwen2-vl")
    small = {"kv_blocks": 400, "block_size": 16, "session_len": 6000, "max_batch_size": 4, "canary_s": 5.0}
    with LocalStack(folder, [Role.PREFILL, Role.DECODE], threads=1, **small) as stack:
        yield stack.ready()


@pytest.fixture
def configured(engine: LocalStack, set_limit: Set) -> LocalStack:
    set_limit("PAGEMILL_ENGINE_URL", engine.url)
    settings.cache_clear()
    return engine


def finish(path: Path, output: Path, processes: PageProcesses, **options: object) -> ParsedDocument:
    events = stream(path, output, ParseOptions(**options), processes=processes)  # type: ignore[arg-type]
    return [event.document for event in events if isinstance(event, DocumentFinished)][-1]


def test_the_engine_says_which_model_it_is_and_that_it_is_well(engine: LocalStack) -> None:
    asked = VlmEngine(engine.url)
    assert listed_models(asked) == [engine.model.name]
    assert check_health(asked).startswith("2 of 2 instances usable")


def test_pages_that_a_model_makes_nothing_of_are_read_another_way(
    configured: LocalStack, tmp_path: Path, processes: PageProcesses
) -> None:
    path = drawn_pdf(tmp_path / "a.pdf", [prose("Prose"), report])
    document = finish(path, tmp_path / "out", processes)
    assert [page.route for page in document.pages] == [Route.LAYOUT, Route.LAYOUT]
    assert document.status is Status.DONE
    assert document.pages[0].why == "sound text layer"
    assert document.pages[1].why.startswith("vlm failed (")
    assert document.manifest.job["engine"] == {"model": configured.model.name}
    assert configured.metrics() and not any(configured.at_rest().values())


def test_the_route_that_was_asked_for_ends_as_well(
    configured: LocalStack, tmp_path: Path, processes: PageProcesses
) -> None:
    scan = scan_of(drawn_pdf(tmp_path / "a.pdf", [report]), tmp_path / "scan.pdf")
    document = finish(scan, tmp_path / "out", processes, route="vlm")
    assert document.pages[0].route is Route.OCR
    assert document.pages[0].why.startswith("vlm failed (")
    assert "river runs along the valley" in document.markdown
    assert not any(configured.at_rest().values())
