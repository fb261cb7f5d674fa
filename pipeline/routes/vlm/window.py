"""The pages of a window through the engine, together: waiting for one page does not hold up the others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from types import TracebackType

import pypdfium2
from PIL import Image

from pipeline.errors import EngineUnavailable, PageFailed, PipelineError
from pipeline.models import Models
from pipeline.page_model import Block, PageModel, TextLine
from pipeline.page_source import PageSource
from pipeline.routes.vlm.completions import Completions
from pipeline.routes.vlm.extract import Extraction, extract
from pipeline.routes.vlm.page import build_page
from pipeline.routes.vlm.text import OwnText, share_out
from pipeline.vlm_engine import VlmEngine, listed_models

PAGES_AT_ONCE = 4
"""Pages that one process has under way: their pictures are held meanwhile, about 12 MB each."""

_SHARE_OF_DEADLINE = 0.6
"""Share of the time for a page that the engine may take; the rest is for another route, if it comes to that."""

_CLOSE_SECONDS = 10.0

_LEAVE_ALONE_SECONDS = 15.0
"""Time for which an engine that could not be reached is not tried again by this process."""


def recognise(
    pages: Sequence[PageSource],
    engine: VlmEngine,
    trusted: Mapping[int, bool],
    models: Models,
    page_seconds: float,
) -> Iterator[tuple[PageSource, PageModel | PipelineError]]:
    """Recognise pages, each yielded as it is done: its page model, or why there is none.

    Args:
        pages: of one document.
        engine: that is asked.
        trusted: by page index, whether the page's text layer says what the page shows.
        models: of this process, for blocks that the engine does not read.
        page_seconds: the time that a page may take in all.

    Yields:
        `EngineUnavailable` in place of a page while the engine does not answer; any other error is the page's own.
    """
    with _Window(engine, trusted, models, page_seconds * _SHARE_OF_DEADLINE) as window:
        yield from window.run(pages)


class _Window:
    """An event loop in a thread of its own: while a page is put together here, the others' answers come in there."""

    def __init__(self, engine: VlmEngine, trusted: Mapping[int, bool], models: Models, seconds: float) -> None:
        self._engine, self._trusted, self._models, self._seconds = engine, trusted, models, seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._completions: Completions | None = None
        self._under_way: dict[Future[_Extracted], PageSource] = {}

    def __enter__(self) -> _Window:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Withdraw what is under way."""
        for future in self._under_way:
            future.cancel()
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)
        self._loop.close()

    def run(self, pages: Sequence[PageSource]) -> Iterator[tuple[PageSource, PageModel | PipelineError]]:
        outage = _outages.of(self._engine)
        if outage is None:
            try:
                self._completions = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
            except EngineUnavailable as error:
                _outages.begins(self._engine, error)
                outage = error
        if outage is not None:
            yield from ((page, outage) for page in pages)
            return
        waiting = list(pages)
        while waiting or self._under_way:
            while waiting and len(self._under_way) < PAGES_AT_ONCE:
                page = waiting.pop(0)
                try:
                    future = self._submit(page)
                except pypdfium2.PdfiumError as error:
                    yield page, PageFailed(f"The page cannot be drawn ({error}).")
                else:
                    self._under_way[future] = page
            if self._under_way:
                for future in wait(self._under_way, return_when=FIRST_COMPLETED).done:
                    page = self._under_way.pop(future)
                    yield page, self._finish(page, future)

    def _submit(self, page: PageSource) -> Future[_Extracted]:
        # pdfium serves one thread, and this is it: pixels and text are taken here, before the other one wants them.
        lines = page.text.lines if self._trusted[page.index] else None
        deadline = time.monotonic() + self._seconds
        extraction = self._extract(page.image, page.size_pt, lines, deadline)
        return asyncio.run_coroutine_threadsafe(extraction, self._loop)

    async def _open(self) -> Completions:
        model = self._engine.model
        if model is None:
            names = await asyncio.to_thread(listed_models, self._engine)
            if not names:
                raise EngineUnavailable(f"The engine at {self._engine.url} has no model.")
            model = names[0]
        return Completions(self._engine, model)

    async def _close(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._completions is not None:
            await self._completions.close()
        await asyncio.get_running_loop().shutdown_default_executor()

    async def _extract(
        self,
        image: Image.Image,
        size_pt: tuple[float, float],
        lines: Sequence[TextLine] | None,
        deadline: float,
    ) -> _Extracted:
        assert self._completions is not None
        shared: list[OwnText] = []

        def known(blocks: list[Block]) -> set[int]:
            if lines is None:
                return set()
            shared.append(share_out(lines, blocks, size_pt))
            return shared[0].known(blocks)

        found = await extract(self._completions, image, size_pt, known, deadline)
        return found, shared[0] if shared else None

    def _finish(self, page: PageSource, future: Future[_Extracted]) -> PageModel | PipelineError:
        try:
            found, own = future.result()
            return build_page(page, found, own, self._models)
        except EngineUnavailable as error:
            _outages.begins(self._engine, error)
            return error
        except PipelineError as error:
            return error
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library raises on this page costs it this route
            return PageFailed(f"{type(error).__name__}: {error}")


_Extracted = tuple[Extraction, OwnText | None]


class _Outages:
    """Engines that could not be reached a moment ago, so that not every page waits for the same refusal."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, EngineUnavailable]] = {}

    def begins(self, engine: VlmEngine, error: EngineUnavailable) -> None:
        self._until[engine.url] = (time.monotonic() + _LEAVE_ALONE_SECONDS, error)

    def of(self, engine: VlmEngine) -> EngineUnavailable | None:
        until, error = self._until.get(engine.url, (0.0, None))
        return error if time.monotonic() < until else None


_outages = _Outages()
