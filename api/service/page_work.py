"""What the API does with a page itself, in a page process: its picture, and its Markdown where no worker wrote it.

Made when first asked for, then kept with the job's artifacts.
"""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from api.service.rendering import MarkdownRequest, RenderRequest
from pipeline.processes import Limits, PageProcesses, Task
from workers.artifacts import ArtifactInfo, ArtifactNotFound, ArtifactStore

_SECONDS = 30.0
_LIMITS = Limits(memory_bytes=1024**3, recycle_after=500)


class PageWork:
    """Page processes of the API. A page that ends its process costs that request, not the service.

    Args:
        processes: how many pages are worked on at the same time; others wait for their turn.
        max_pixels: bound on one picture.
    """

    def __init__(self, store: ArtifactStore, processes: int, max_pixels: int) -> None:
        self._store = store
        self._max_pixels = max_pixels
        self._processes = PageProcesses(processes, _LIMITS)
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="page-work")

    async def draw(
        self,
        key: str,
        input_key: str,
        *,
        page: int,
        width: int,
        rotation: int,
        image_format: str,
        password: str | None,
    ) -> ArtifactInfo:
        """The picture's artifact, drawn unless it is there already.

        Args:
            key: where to keep it.
            input_key: the document's bytes.
            page: counts from 1. width: pixels. rotation: degrees clockwise. image_format: jpeg or png.

        Raises:
            PipelineError: the document or the page cannot be drawn. ArtifactNotFound: its bytes are gone.
        """

        def run() -> ArtifactInfo:
            try:
                return self._store.info(key)
            except ArtifactNotFound:
                pass
            with tempfile.TemporaryDirectory(prefix="pagemill-render-") as scratch:
                request = RenderRequest(
                    path=str(self._store.fetch(input_key)),
                    scratch=scratch,
                    password=password,
                    page=page,
                    width=width,
                    rotation=rotation,
                    image_format=image_format,
                    max_pixels=self._max_pixels,
                )
                picture = self._processes.call(Task("api.service.rendering:render_page", request, seconds=_SECONDS))
            self._store.put(key, picture)
            return self._store.info(key)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    async def markdown(self, job_key: str, page: int) -> str:
        """The Markdown of a finished page, which counts from 1.

        Raises:
            ArtifactNotFound: the page is not there. PipelineError: it cannot be written as Markdown.
        """

        def run() -> str:
            key = page_key(job_key, page, "md")
            stored = _text(self._store, page_key(job_key, page, "json"))
            text: str = self._processes.call(
                Task("api.service.rendering:page_markdown", MarkdownRequest(stored), seconds=_SECONDS)
            )
            self._store.put(key, text.encode("utf-8", "replace"))
            return text

        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, _text, self._store, page_key(job_key, page, "md"))
        except ArtifactNotFound:
            return await loop.run_in_executor(self._threads, run)

    def close(self) -> None:
        """End the processes. What is under way is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.close()


def page_key(job_key: str, page: int, suffix: str) -> str:
    """Where a finished page (`json`) and its Markdown (`md`) are kept; pages count from 1."""
    return f"jobs/{job_key}/pages/{page:05d}.{suffix}"


def image_key(job_key: str, page: int, width: int, rotation: int, image_format: str) -> str:
    """Where a picture of a page is kept."""
    suffix = {"jpeg": "jpg", "png": "png"}[image_format]
    return f"jobs/{job_key}/renders/{page:05d}-{width}-{rotation}.{suffix}"


def media_type(path: str) -> str:
    """Of a picture, by its ending."""
    return {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".svg": "image/svg+xml"}.get(
        Path(path).suffix.lower(), "application/octet-stream"
    )


def _text(store: ArtifactStore, key: str) -> str:
    with store.open(key) as file:
        return file.read().decode("utf-8")
