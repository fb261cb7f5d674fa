"""A headless Chromium, a service, and a record of what the browser asked for."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright

from tests.api.service.running import Service, running
from tests.api.web.played_worker import PlayedWorker

# Nothing of the browser's own may go out either.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Watched:
    """A page and what was seen of it: errors of its scripts, hosts that it asked."""

    page: Page
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """Not longer than a module: its event loop runs in the tests' own thread, where no other could then start."""
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as started:
        yield started


@pytest.fixture
def browser(playwright: Playwright, tmp_path: Path) -> Iterator[BrowserContext]:
    context = playwright.chromium.launch_persistent_context(
        tmp_path / "browser",
        executable_path=shutil.which("chromium"),
        headless=True,
        args=ARGUMENTS,
        viewport={"width": 1360, "height": 860},
        accept_downloads=True,
    )
    context.set_default_timeout(15_000)
    yield context
    context.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service without workers: the test plays the worker, so that it decides what happens when."""
    with running(tmp_path / "service") as started:
        yield started


@pytest.fixture
def worker(service: Service) -> PlayedWorker:
    return PlayedWorker(service)


@pytest.fixture
def open_page(browser: BrowserContext) -> Iterator[Callable[[Service | str], Watched]]:
    """Opens the page of a service; after the test, no script may have failed and no other host been asked."""
    opened: list[tuple[Watched, str]] = []

    def open_at(service: Service | str) -> Watched:
        url = service if isinstance(service, str) else service.url
        page = browser.new_page()
        watched = Watched(page)
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.on("console", lambda message: _note(watched, message.type, message.text))
        page.on("request", lambda request: watched.hosts.add(urlsplit(request.url).netloc))
        page.goto(url)
        opened.append((watched, urlsplit(url).netloc))
        return watched

    yield open_at
    for watched, host in opened:
        with contextlib.suppress(Exception):
            watched.page.close()
        assert watched.errors == []
        assert watched.hosts <= {host, ""}, "the page asked another host"


def _note(watched: Watched, kind: str, text: str) -> None:
    # Refusals that a test provokes are told in the console too; they are no fault of the scripts.
    if kind == "error" and "Failed to load resource" not in text:
        watched.errors.append(text)
