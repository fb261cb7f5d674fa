"""Documents are written by strangers: nothing in them runs, nothing in them makes the browser ask other hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.api.service.running import Service, running
from tests.api.web.conftest import Watched
from tests.api.web.played_worker import PlayedWorker, text_block
from tests.documents import text_pdf

Open = Callable[[Service | str], Watched]

ATTACKS = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "<img src='http://203.0.113.9/pixel.png'>",
    "![beacon](http://203.0.113.9/pixel.png)",
    "![beacon](//203.0.113.9/pixel.png)",
    "![up](images/../../../v1/info)",
    "[click](javascript:window.hit=1)",
    "[click](data:text/html,<script>window.hit=1</script>)",
    "<a href=' javascript:window.hit=1'>click</a>",
    "<svg><script>window.hit = 1</script></svg>",
    "<svg onload='window.hit = 1'></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--><img src=x onerror=window.hit=1>'>",
    "<iframe src='http://203.0.113.9/'></iframe><iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<object data='http://203.0.113.9/'></object><embed src='http://203.0.113.9/'>",
    "<link rel=stylesheet href='http://203.0.113.9/a.css'><style>@import 'http://203.0.113.9/b.css'</style>",
    "<p style='background: url(http://203.0.113.9/c.png)'>styled</p>",
    "<form action='http://203.0.113.9/'><button>send</button></form>",
    "<base href='http://203.0.113.9/'><meta http-equiv=refresh content='0;url=http://203.0.113.9/'>",
    "<table background='http://203.0.113.9/d.png'><tr><td onclick='window.hit = 1'>cell</td></tr></table>",
    "<div id='viewer' data-block='0'>clobber</div><img name='getElementById' src='images/x.png'>",
    "<video src='http://203.0.113.9/e.mp4' autoplay></video><audio src='http://203.0.113.9/f.mp3'></audio>",
]


def test_nothing_in_a_document_runs_or_calls_out(
    service: Service, worker: PlayedWorker, open_page: Open, tmp_path: Path
) -> None:
    watched = open_page(service)
    page = watched.page
    page.locator("#files").set_input_files(str(text_pdf(tmp_path / "report.pdf", len(ATTACKS))))
    worker.open(len(ATTACKS))
    for attack in ATTACKS:
        worker.finish(f"Before\n\n{attack}\n\nAfter, the end\n", [text_block(attack)])
    expect(page.locator('.cell[data-state="done"]')).to_have_count(len(ATTACKS))
    for number, attack in enumerate(ATTACKS, 1):
        page.locator(f'.cell[data-page="{number}"]').click()
        expect(page.locator("#page-number")).to_have_text(f"{number} / {len(ATTACKS)}")
        expect(page.locator("#rendered")).to_contain_text("Before")
        expect(page.locator(".box")).to_have_count(1)
        found = page.locator("#rendered").evaluate(
            """root => {
                for (const link of root.querySelectorAll("a")) link.click();
                for (const cell of root.querySelectorAll("td")) cell.click();
                const bad = [];
                const refused = /^(script|iframe|object|embed|link|style|form|base|meta|svg|math|video|audio)$/i;
                for (const element of root.querySelectorAll("*")) {
                    if (refused.test(element.tagName))
                        bad.push(element.outerHTML);
                    for (const {name, value} of element.attributes)
                        if (/^(on|style$|background$|id$|name$)/.test(name) || /203.0.113.9|javascript/.test(value))
                            bad.push(element.outerHTML);
                }
                return bad;
            }"""
        )
        assert found == [], attack
        assert page.evaluate("window.hit") is None, attack
    # And no request left for the attacker's host: `open_page` looks at every one.
    forget_what_the_policy_stopped(watched)


def forget_what_the_policy_stopped(watched: Watched) -> None:
    """Chromium says in the console what it did not run, also for the inert copy that the sanitiser reads."""
    watched.errors = [text for text in watched.errors if "The action has been blocked." not in text]


def test_a_file_name_is_text(service: Service, open_page: Open, tmp_path: Path) -> None:
    page = open_page(service).page
    name = "<img src=x onerror=window.hit=1>.pdf"
    page.locator("#files").set_input_files(str(text_pdf(tmp_path / name)))
    expect(page.locator(".documents .card")).to_contain_text("onerror=window.hit=1")
    assert page.locator(".documents img").count() == 0
    assert page.evaluate("window.hit") is None


def test_the_browser_is_told_to_run_nothing_else(service: Service, open_page: Open) -> None:
    policy = httpx.get(service.url).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    watched = open_page(service)
    page = watched.page
    refused = page.evaluate(
        """async () => {
            const said = new Promise(resolve =>
                document.addEventListener("securitypolicyviolation", event => resolve(event.effectiveDirective)));
            const script = document.createElement("script");
            try {
                script.textContent = "window.hit = 1";
                document.head.append(script);
            } catch {
                return "trusted types";
            }
            return said;
        }"""
    )
    assert refused
    assert page.evaluate("window.hit") is None
    forget_what_the_policy_stopped(watched)


@pytest.mark.parametrize("path", ["/", "/js/app.js", "/style.css", "/vendor/marked.js"])
def test_files_of_the_page_are_asked_for_again_after_an_upgrade(service: Service, path: str) -> None:
    answer = httpx.get(service.url + path)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"
    again = httpx.get(service.url + path, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


def test_a_service_with_keys_is_asked_with_the_key(open_page: Open, tmp_path: Path) -> None:
    from api.service.auth import hash_key, new_key

    key = new_key()
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[keys]]\nname = "test"\ntenant = "acme"\nsha256 = "{hash_key(key).hex()}"\n')
    with running(tmp_path / "service", keys_file=keys) as service:
        page = open_page(service).page
        dialog = page.locator("#key-dialog")
        expect(dialog).to_be_visible()
        page.locator("#key-input").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-message")).to_contain_text("not known")
        page.locator("#key-input").fill(key)
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        page.locator("#files").set_input_files(str(text_pdf(tmp_path / "report.pdf")))
        worker = PlayedWorker(service)
        worker.open(1)
        worker.finish("# Secret\n", [text_block("Secret", kind="doc_title")])
        worker.assemble("# Secret\n")
        expect(page.locator("#rendered h1")).to_have_text("Secret")
        expect(page.locator("#page-image")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download Markdown").click()
        assert Path(download.value.path()).read_text() == "# Secret\n"
        page.reload()
        expect(page.locator("#rendered h1")).to_have_text("Secret")
        assert key not in page.content()
