"""`pagemill bench service`: how soon, how fair, how fast, how steady the service is, and what a restart costs.

Everything is measured through the REST interface of a `pagemill serve` that the bench starts itself, on documents
made of the pages of one born-digital file.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.figures import Figure, Report, at_least, at_most
from bench.parse import repeat_pages
from bench.process_tree import run
from bench.product import parse_command
from bench.running_service import RunningService

FIRST_PAGE_REACH = 3.0
BEHIND_REACH = 0.05
SPEED_REACH = 0.9
P99_REACH = 100.0
MEMORY_REACH = 64.0
OVERHEAD_REACH = 0.10
WORKERS = 2
LONG_PAGES, SHORT_PAGES = 400, 2
UPLOADS, UPLOAD_BYTES = 200, 1 << 20
TIMEOUT = 3600.0


@dataclass(slots=True)
class _Findings:
    """What the parts of the bench have found so far."""

    figures: list[Figure] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def measure(file: Path, *, pages: int = 96, small: int = 1000, only: tuple[str, ...] = ()) -> Report:
    """Run every part, each with a fresh service.

    Args:
        file: a born-digital PDF; documents are made by repeating its pages.
        pages: of each of the two documents whose speed is compared, and of the one that is interrupted.
        small: documents of the batch.
        only: names of parts to run; empty for all. A part left out has no figure, so the report is then not ok.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not file.is_file():
        raise FileNotFoundError(f"no such file: {file} (give one, or set PAGEMILL_CORPUS)")
    parts: dict[str, Callable[[Path, _Findings], None]] = {
        "first_page": lambda scratch, found: _first_page(file, scratch, found),
        "speed": lambda scratch, found: _speed(file, pages, scratch, found),
        "uploads": _uploads,
        "batch": lambda scratch, found: _batch(file, small, scratch, found),
        "restart": lambda scratch, found: _restart(file, pages, scratch, found),
    }
    found = _Findings()
    for name, part in parts.items():
        if only and name not in only:
            continue
        _progress(name)
        with tempfile.TemporaryDirectory(prefix="pagemill-bench-", ignore_cleanup_errors=True) as scratch:
            try:
                part(Path(scratch), found)
            except Exception as error:  # noqa: BLE001 - one part that fails must not hide what the others measure
                found.failures.append(f"{name}: {type(error).__name__}: {error}")
                found.figures.append(at_most(f"{name}_measured", None, "ratio", 0))
    return Report("service", tuple(found.figures), found.details, tuple(found.failures))


def default_file() -> Path:
    """The long born-digital file of the corpus."""
    return Path(os.environ.get("PAGEMILL_CORPUS", "../shared/corpus")) / "text" / "2022_Q3_NVDA.pdf"


def _first_page(file: Path, scratch: Path, found: _Findings) -> None:
    """The first page of a long document, and a short document submitted behind it."""
    long, short, warm = scratch / "long.pdf", scratch / "short.pdf", scratch / "warm.pdf"
    repeat_pages(file, LONG_PAGES, long)
    repeat_pages(file, SHORT_PAGES, short)
    repeat_pages(file, 1, warm)
    with RunningService(scratch / "data", "--workers", str(WORKERS)) as service:
        started = time.perf_counter()
        service.wait(service.upload([warm]), TIMEOUT)
        cold = time.perf_counter() - started
        started = time.perf_counter()
        (book,) = service.upload([long])
        service.wait_for_page(book, 1, TIMEOUT)
        first = time.perf_counter() - started
        (letter,) = service.upload([short])
        service.wait([letter], TIMEOUT)
        behind = service.state(book)
    share = behind["pages_done"] / behind["pages_total"]
    found.figures += [
        at_most("first_page_seconds", first, "seconds", FIRST_PAGE_REACH),
        at_most("long_done_when_short_is", share, "ratio", BEHIND_REACH),
    ]
    found.details["first_page"] = {
        "seconds": round(first, 3),
        "cold_document_seconds": round(cold, 3),
        "pages_done_before_the_short_document": behind["pages_done"],
    }


def _speed(file: Path, pages: int, scratch: Path, found: _Findings) -> None:
    """Pages a second of the service over those of `pagemill parse`, both with two workers, on two documents."""
    files = [scratch / "a.pdf", scratch / "b.pdf"]
    repeat_pages(file, pages, files[0])
    repeat_pages(file, pages - 1, files[1])  # other bytes: equal ones would be parsed once
    count = 2 * pages - 1
    with RunningService(scratch / "data", "--workers", str(WORKERS)) as service:
        service.wait(service.upload([files[1]], pages="1"), TIMEOUT)
        started = time.perf_counter()
        documents = service.wait(service.upload(files, force="true"), TIMEOUT)
        through_service = count / (time.perf_counter() - started)
    found.failures += [f"speed: {d['name']} is {d['state']}" for d in documents if d["state"] != "done"]
    direct = run(parse_command(files, scratch / "out", "--workers", str(WORKERS)), timeout=TIMEOUT)
    if direct.returncode != 0:
        found.failures.append(f"speed: pagemill parse exits {direct.returncode}")
    command = count / direct.seconds
    found.figures.append(at_least("service_over_parse", through_service / command, "ratio", SPEED_REACH))
    found.details["speed"] = {
        "pages": count,
        "service_pages_per_second": round(through_service, 2),
        "parse_pages_per_second": round(command, 2),
    }


def _uploads(scratch: Path, found: _Findings) -> None:
    """Latency of a question, and memory, while many uploads come in. The API alone: workers are elsewhere."""
    with RunningService(scratch / "data", "--redis", "redis://127.0.0.1:1/0") as service:
        document = service.upload([_noise(scratch / "first.pdf")])[0]
        host, port = urlsplit(service.url).hostname or "", urlsplit(service.url).port or 0
        _ask(host, port, document, seconds=1.0)
        before = service.process.memory_info().rss
        load = subprocess.Popen(
            [sys.executable, "-m", "bench.upload_load", host, str(port), str(UPLOADS), str(UPLOAD_BYTES)],
            stdout=subprocess.PIPE,
        )
        peak = _Peak(service)
        times = _ask(host, port, document, until=load)
        grown = peak.stop() - before
        accepted = int(load.communicate()[0] or 0)
    if accepted != UPLOADS:
        found.failures.append(f"uploads: {accepted} of {UPLOADS} were accepted")
    times.sort()
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))] * 1000 if times else None
    found.figures += [
        at_most("status_p99_milliseconds", p99, "milliseconds", P99_REACH),
        at_most("upload_memory_mb", grown / 2**20, "MiB", MEMORY_REACH),
    ]
    found.details["uploads"] = {
        "accepted": accepted,
        "questions": len(times),
        "median_milliseconds": round(times[len(times) // 2] * 1000, 2) if times else None,
        "memory_before_mb": round(before / 2**20, 1),
    }


def _ask(
    host: str, port: int, document: str, *, seconds: float | None = None, until: subprocess.Popen[bytes] | None = None
) -> list[float]:
    """Ask for a document's state again and again over one connection; how long each answer took, seconds."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    started, times = time.perf_counter(), []
    while (until is None or until.poll() is None) and (seconds is None or time.perf_counter() - started < seconds):
        asked = time.perf_counter()
        connection.request("GET", f"/v1/documents/{document}")
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - asked)
        if answer.status != 200:
            raise RuntimeError(f"GET answers {answer.status}")
        time.sleep(0.005)
    connection.close()
    return times


class _Peak:
    """The largest resident size of the API's process from now until `stop`, bytes."""

    def __init__(self, service: RunningService) -> None:
        self._process = service.process
        self._peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            self._peak = max(self._peak, self._process.memory_info().rss)
            if self._over.wait(0.02):
                return

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak


def _batch(file: Path, small: int, scratch: Path, found: _Findings) -> None:
    """Many small documents from one folder, against `pagemill parse` of the same files: the rest is the queue's."""
    folder = scratch / "root" / "small"
    folder.mkdir(parents=True)
    page = scratch / "page.pdf"
    repeat_pages(file, 1, page)
    content = page.read_bytes()
    files = [folder / f"{number:05d}.pdf" for number in range(small)]
    for path in files:
        path.write_bytes(content + b"\n%% number %s\n" % path.stem.encode())  # other bytes, the same page
    environment = {"PAGEMILL_BATCH_ROOT": str(folder.parent)}
    with RunningService(scratch / "data", "--workers", str(WORKERS), environment=environment) as service:
        service.wait(service.upload([page]), TIMEOUT)
        started = time.perf_counter()
        batch = service.post_json("/v1/batches", {"directory": "small"})
        while not batch["finished"]:
            time.sleep(0.2)
            batch = service.get(f"/v1/batches/{batch['id']}")
        queued = time.perf_counter() - started
    done = batch["counts"].get("done", 0)
    direct = run(parse_command(files, scratch / "out", "--workers", str(WORKERS)), timeout=TIMEOUT)
    if direct.returncode != 0:
        found.failures.append(f"batch: pagemill parse exits {direct.returncode}")
    found.figures += [
        at_least("batch_documents_done", done, "documents", small),
        at_most("queue_overhead", queued / direct.seconds - 1, "ratio", OVERHEAD_REACH),
    ]
    found.details["batch"] = {
        "documents": small,
        "counts": batch["counts"],
        "service_seconds": round(queued, 1),
        "parse_seconds": round(direct.seconds, 1),
    }


def _restart(file: Path, pages: int, scratch: Path, found: _Findings) -> None:
    """Kill everything in the middle of a document, start again, see which finished pages were made anew."""
    document = scratch / "interrupted.pdf"
    repeat_pages(file, pages, document)
    arguments = ("--workers", str(WORKERS))
    service = RunningService(scratch / "data", *arguments)
    with service:
        (one,) = service.upload([document])
        while service.state(one)["pages_done"] < pages // 3:
            time.sleep(0.05)
        service.kill()
    finished = _finished_pages(scratch / "data", one)
    written = _page_files(scratch / "data")
    with RunningService(scratch / "data", *arguments) as again:
        (end,) = again.wait([one], TIMEOUT)
    now = _page_files(scratch / "data")
    redone = sum(now.get(name) != written.get(name) for name in finished)
    if end["state"] != "done":
        found.failures.append(f"restart: the document is {end['state']}")
    found.figures.append(at_most("pages_parsed_again", redone, "pages", 0))
    found.details["restart"] = {"pages": pages, "finished_before": len(finished), "state": end["state"]}


def _finished_pages(data: Path, document: str) -> list[str]:
    """File names of the pages that the job store of a service that does not run knows as done."""
    from workers.store import JobStore, PageStatus

    with JobStore.open(f"sqlite:///{data}/store.db") as store:
        done = [page for page in store.pages(document) if page.state is PageStatus.DONE]
    return [f"{page.index + 1:05d}.json" for page in done]


def _page_files(data: Path) -> dict[str, int]:
    """When each page's file was written, by name, nanoseconds."""
    return {path.name: path.stat().st_mtime_ns for path in (data / "artifacts" / "jobs").glob("*/pages/*.json")}


def _noise(path: Path) -> Path:
    path.write_bytes(b"%PDF-1.4 " + os.urandom(1000))
    return path


def _progress(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
