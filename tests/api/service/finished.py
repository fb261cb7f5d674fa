"""A finished document made without parsing: its rows and its artifacts, as a worker leaves them."""

from __future__ import annotations

import json

import httpx

from pipeline.page_model import Route
from pipeline.page_store import PageRecord
from tests.api.service.running import Service
from tests.workers.store.work import do_all

MARKDOWN = '# Title\n\nText with "quotes", ünïcode and a picture ![](images/page-0001-1.jpg)\n'
CONTENT_LIST = [{"type": "text", "text": "Title", "page_idx": 0}]
PICTURE = b"\xff\xd8 the bytes of a picture"


def finish(service: Service, client: httpx.Client, content: bytes = b"%PDF-1.4", pages: int = 1) -> str:
    """Submit a document, play the worker, put results into the store. Answers the document's id."""
    answer = client.post("/v1/documents", files={"files": ("Résumé 1.pdf", content)})
    document = str(answer.json()["documents"][0]["id"])
    key = service.store.document(document).job_key
    put = service.artifacts.put
    for number in range(1, pages + 1):
        record = PageRecord(number - 1, Route.FLASH, "sound text layer", 0.1)
        blocks = [
            {"type": "text", "bbox": [0.1, 0.1, 0.9, 0.2], "content": "Title"},
            {"type": "image", "bbox": [0.1, 0.3, 0.9, 0.4], "image_path": f"images/page-{number:04d}-1.jpg"},
        ]
        page = {"blocks": blocks, "width_pt": 595.0, "height_pt": 842.0, "rotation": 90}
        stored = {"record": record.to_json(), "page": page}
        put(f"jobs/{key}/pages/{number:05d}.json", json.dumps(stored).encode())
        put(f"jobs/{key}/pages/{number:05d}.md", MARKDOWN.encode())
        put(f"jobs/{key}/images/page-{number:04d}-1.jpg", PICTURE)
        put(f"jobs/{key}/result/images/page-{number:04d}-1.jpg", PICTURE)
    put(f"jobs/{key}/result/document.md", MARKDOWN.encode())
    put(f"jobs/{key}/result/content_list.json", json.dumps(CONTENT_LIST).encode())
    put(f"jobs/{key}/result/middle.json", b'{"pdf_info": []}')
    put(f"jobs/{key}/result/manifest.json", b'{"status": "done"}')
    do_all(service.store, pages)
    return document
