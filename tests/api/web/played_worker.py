"""A worker that does what the test tells it, when it tells it: real rows, real artifacts, no parsing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipeline.page_model import Route
from pipeline.page_store import PageRecord
from pipeline.windows import plan_windows
from tests.api.service.running import Service
from tests.workers.servers import wait_for
from tests.workers.store.work import LEASE
from workers.store import Claim, JobKind
from workers.store.states import Problem

Block = dict[str, Any]


class PlayedWorker:
    def __init__(self, service: Service) -> None:
        self.store = service.store
        self.artifacts = service.artifacts

    def open(self, pages: int) -> str:
        """Open the next document, as one with so many pages; answers its job."""
        claim = self._take(JobKind.PREPARE)
        self.store.opened(
            claim,
            page_count=pages,
            source_kind="pdf",
            selected=range(pages),
            bad=(),
            windows=plan_windows(list(range(pages)), 1),
        )
        return claim.job_key

    def refuse(self, code: str, message: str) -> None:
        """End the next document with an error, as preflight does."""
        self.store.job_failed(self._take(JobKind.PREPARE), Problem(code, message))

    def finish(
        self,
        markdown: str,
        blocks: Sequence[Block],
        *,
        warnings: tuple[str, ...] = (),
        pictures: dict[str, bytes] | None = None,
    ) -> int:
        """Finish the next page; answers its number."""
        claim = self._take(JobKind.PAGE)
        (index,) = claim.pages
        record = PageRecord(index, Route.LAYOUT, "sound text layer", 0.25, warnings=warnings)
        page = {"blocks": list(blocks), "width_pt": 595.0, "height_pt": 842.0, "rotation": 0}
        folder = f"jobs/{claim.job_key}"
        stored = json.dumps({"record": record.to_json(), "page": page})
        self.artifacts.put(f"{folder}/pages/{index + 1:05d}.json", stored.encode())
        self.artifacts.put(f"{folder}/pages/{index + 1:05d}.md", markdown.encode())
        for name, content in (pictures or {}).items():
            self.artifacts.put(f"{folder}/images/{name}", content)
        self.store.page_finished(claim, record)
        self.store.window_ended(claim)
        return index + 1

    def fail(self, code: str, message: str) -> int:
        """Give up the next page; answers its number."""
        claim = self._take(JobKind.PAGE)
        (index,) = claim.pages
        self.store.page_finished(claim, PageRecord(index, None, "", 0.1, error_code=code, error=message))
        self.store.window_ended(claim)
        return index + 1

    def assemble(self, markdown: str = "# Whole\n") -> None:
        """Finish the document."""
        claim = self._take(JobKind.ASSEMBLE)
        folder = f"jobs/{claim.job_key}/result"
        self.artifacts.put(f"{folder}/document.md", markdown.encode())
        self.artifacts.put(f"{folder}/content_list.json", b"[]")
        self.artifacts.put(f"{folder}/middle.json", b"{}")
        self.artifacts.put(f"{folder}/manifest.json", b'{"status": "done"}')
        self.store.assembled(claim)

    def _take(self, kind: JobKind) -> Claim:
        """The next piece of work; the browser may still be sending what it comes from."""
        found: list[Claim] = []

        def there() -> bool:
            claim = self.store.claim([kind], "played", LEASE)
            found.extend([claim] if claim else [])
            return bool(found)

        wait_for(there, f"there is a piece of {kind} to claim")
        return found[0]


def text_block(text: str, bbox: Sequence[float] = (0.1, 0.1, 0.9, 0.2), kind: str = "text") -> Block:
    return {"type": kind, "bbox": list(bbox), "content": [{"type": "text", "content": text}]}
