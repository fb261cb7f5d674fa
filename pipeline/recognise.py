"""One window of pages, in a page process: open, choose each page's route, recognise, store, report.

A route that raises costs the page that route: the next one in `_NEXT_ROUTE` is tried, with a warning. What
takes the process down with it is the supervisor's business (`pipeline.windows`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pypdfium2

from pipeline.errors import Damaged, EngineUnavailable, PageFailed, PipelineError, RouteUnavailable
from pipeline.models import Models
from pipeline.open import open_pdf
from pipeline.page_model import PageModel, Quality, Route, RouteDecision
from pipeline.page_source import PageSource
from pipeline.page_store import PageRecord, PageStore
from pipeline.vlm_engine import VlmEngine

_NEXT_ROUTE = {Route.FLASH: Route.LAYOUT, Route.LAYOUT: Route.OCR}


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """Pages to recognise.

    Attributes:
        pdf: path of the document.
        password: that opens it.
        pages: 0-based indices.
        store: folder of the document's `PageStore`.
        route: AUTO or one for all.
        quality: of OCR.
        threads: for the models.
        markdown: also store each page's own Markdown, for those who read it before the document is finished.
        engine: for the vlm route; None where none is configured.
        page_seconds: deadline of each page; the vlm route keeps some of it for another route.
    """

    pdf: str
    password: str | None
    pages: tuple[int, ...]
    store: str
    route: Route
    quality: Quality
    threads: int
    markdown: bool = False
    engine: VlmEngine | None = None
    page_seconds: float = 120.0


def recognise_window(request: WindowRequest) -> Iterator[PageRecord]:
    """Recognise the pages, store each one as it is done, and yield its record.

    Pages come in the order in which they are finished. A page that no route could read is yielded with its
    error and not stored.

    Raises:
        EngineUnavailable: the route vlm is asked for, and its engine does not answer. What is done is stored.
    """
    store = PageStore(Path(request.store))
    models = _models(request.threads, request.quality)
    document = open_pdf(request.pdf, request.password)
    try:
        sources: list[PageSource] = []
        for index in request.pages:
            try:
                sources.append(PageSource(document, index))
            except pypdfium2.PdfiumError as error:
                damaged = Damaged(f"Page {index + 1} is damaged ({error}).")
                yield PageRecord(index, None, "", 0.0, error_code=damaged.code, error=damaged.message)
        for record, page in _recognise(document, sources, request, models):
            if page is not None:
                store.save(record, page)
                if request.markdown:
                    _save_markdown(store, record.index)
            yield record
    finally:
        document.close()


def _save_markdown(store: PageStore, index: int) -> None:
    from pipeline.assemble import page_markdown

    # As stored: its pictures are files by now. A page whose Markdown cannot be written alone is read all the same.
    with contextlib.suppress(Exception):
        store.save_markdown(index, page_markdown(store.load(index)[1]))


@lru_cache(maxsize=1)
def _models(threads: int, quality: Quality) -> Models:
    return Models(threads, quality)


def _recognise(
    document: pypdfium2.PdfDocument, sources: list[PageSource], request: WindowRequest, models: Models
) -> Iterator[tuple[PageRecord, PageModel | None]]:
    decisions = {source.index: _decide(source, request) for source in sources}
    flash = [source for source in sources if decisions[source.index].route is Route.FLASH]
    # MinerU's flash tier looks at the pages of a window together: running headers repeat, fonts compare.
    started = time.perf_counter()
    together = _flash_together(document, flash)
    seconds = (time.perf_counter() - started) / max(1, len(flash))
    engine: list[PageSource] = []
    for source in sources:
        decision = decisions[source.index]
        if decision.route is Route.VLM:
            engine.append(source)
            continue
        if source.index in together:
            page = together[source.index]
            yield _record(source, decision, seconds, page.warnings), page
        else:
            yield _alone(document, source, decision, models)
        source.release()
    yield from _by_engine(document, engine, decisions, request, models)


def _decide(source: PageSource, request: WindowRequest) -> RouteDecision:
    if request.route is not Route.AUTO:
        return RouteDecision(request.route, "asked for")
    from pipeline.route import choose

    return choose(source, engine=request.engine is not None)


def _by_engine(
    document: pypdfium2.PdfDocument,
    sources: list[PageSource],
    decisions: dict[int, RouteDecision],
    request: WindowRequest,
    models: Models,
) -> Iterator[tuple[PageRecord, PageModel | None]]:
    """Pages of the vlm route, together; those that it cannot read go where they would go without an engine."""
    if not sources:
        return
    if request.engine is None:
        raise RouteUnavailable("The route vlm needs an engine, and none is configured: set PAGEMILL_ENGINE_URL.")
    from pipeline.route import choose
    from pipeline.routes.vlm.window import recognise

    otherwise = {source.index: choose(source) for source in sources}
    trusted = {index: decision.route is Route.LAYOUT for index, decision in otherwise.items()}
    started = time.perf_counter()
    for source, page in recognise(sources, request.engine, trusted, models, request.page_seconds):
        if isinstance(page, PageModel):
            taken = decisions[source.index]
            yield _record(source, taken, time.perf_counter() - started, page.warnings), page
        elif isinstance(page, EngineUnavailable) and request.route is Route.VLM:
            raise page
        else:
            failed = f"Route vlm failed ({page.message[:200]})."
            other = otherwise[source.index]
            why = f"vlm failed ({page.message[:80]}), {other.why}"
            yield _alone(document, source, RouteDecision(other.route, why), models, [failed])
        source.release()


def _flash_together(document: pypdfium2.PdfDocument, sources: list[PageSource]) -> dict[int, PageModel]:
    """The pages of the window that flash reads, by index; none if one of them breaks it."""
    if not sources:
        return {}
    from pipeline.routes import flash

    try:
        pages = flash.recognise(document, sources)
    except Exception:  # noqa: BLE001 - one broken page fails the window; each is tried alone next
        return {}
    return {source.index: page for source, page in zip(sources, pages, strict=True)}


def _alone(
    document: pypdfium2.PdfDocument,
    source: PageSource,
    decision: RouteDecision,
    models: Models,
    before: Sequence[str] = (),
) -> tuple[PageRecord, PageModel | None]:
    """One page by its route, or by the next ones where that fails; `before` are warnings that it has already."""
    started = time.perf_counter()
    warnings: list[str] = list(before)
    route: Route | None = decision.route
    error: PipelineError = PageFailed("No route could read the page.")
    while route is not None:
        try:
            page = _by_route(route, document, source, models)
        except MemoryError:
            raise
        except Exception as caught:  # noqa: BLE001 - whatever a library raises on this page costs it this route
            error = caught if isinstance(caught, PipelineError) else PageFailed(f"{type(caught).__name__}: {caught}")
            warnings.append(f"Route {route} failed ({error.message[:200]}).")
            route = _NEXT_ROUTE.get(route)
        else:
            taken = RouteDecision(route, decision.why if route is decision.route else f"{decision.route} failed")
            return _record(source, taken, time.perf_counter() - started, warnings + page.warnings), page
    seconds = round(time.perf_counter() - started, 3)
    return PageRecord(source.index, None, decision.why, seconds, tuple(warnings), error.code, error.message), None


def _by_route(route: Route, document: pypdfium2.PdfDocument, source: PageSource, models: Models) -> PageModel:
    if route is Route.FLASH:
        from pipeline.routes import flash

        return flash.recognise(document, [source])[0]
    if route is Route.LAYOUT:
        from pipeline.routes import layout

        return layout.recognise(source, models)
    from pipeline.routes import ocr

    return ocr.recognise(source, models)


def _record(source: PageSource, decision: RouteDecision, seconds: float, warnings: list[str]) -> PageRecord:
    return PageRecord(source.index, decision.route, decision.why, round(seconds, 3), tuple(warnings))
