"""Ingestion by workers at a broker: `pagemill ingest --redis URL` with a worker beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline import parse
from tests.documents import text_pdf
from tests.workers.servers import Redis, wait_for
from tests.workers.service import ROOT, Service, worker


def ingest(service: Service, redis: Redis, *arguments: str | Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PAGEMILL_DATABASE_URL": service.settings.database(),
        "PAGEMILL_ARTIFACTS_URL": service.settings.artifacts(),
        "PAGEMILL_DATA_DIR": str(service.folder),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "api.cli.main", "ingest", *map(str, arguments), "--redis", redis.url, "--json"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_workers_do_the_work_also_of_an_ingestion_that_was_killed(
    make_service: Callable[..., Service], redis: Redis, tmp_path: Path
) -> None:
    service = make_service(redis_url=redis.url)
    source, out = tmp_path / "in", tmp_path / "out"
    (source / "below").mkdir(parents=True)
    text_pdf(source / "a.pdf", pages=2)
    text_pdf(source / "below" / "b.pdf")
    (source / "bad.pdf").write_bytes(b"no document")
    killed = ingest(service, redis, source, "-o", out, "-r")
    wait_for(lambda: len(service.store.list_documents().documents) == 3, "all are submitted", 60)
    killed.kill()
    killed.communicate(timeout=30)
    with worker(service):
        finished = ingest(service, redis, source, "-o", out, "-r")
        output, errors = finished.communicate(timeout=240)
    assert finished.returncode == 3, errors
    summary = json.loads(output)
    assert (summary["found"], summary["done"], summary["failed"], summary["skipped"]) == (3, 2, 1, 0)
    assert len(service.store.list_documents().documents) == 3, "what was submitted was not submitted again"
    here = parse(source / "a.pdf", tmp_path / "here", workers=1)
    assert (out / "a" / "a.md").read_bytes() == here.markdown_path.read_bytes()
    assert "Chapter 1" in (out / "below" / "b" / "b.md").read_text("utf-8")
    service.assert_clean(service.store.list_documents().documents)
