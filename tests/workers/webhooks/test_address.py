"""Which addresses webhooks may go to."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pydantic import ValidationError

from tests.workers.webhooks.test_delivery import SECRET, settings
from workers.webhooks import WebhookRefused, WebhookSettings, check_url
from workers.webhooks.address import NameNotResolved, resolve

ORIGINS = ("hooks.example.com", "https://*.example.org:8443", "http://plain.example.net")


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/a?b=c",
        "https://HOOKS.example.com.:443/",
        "https://a.example.org:8443/",
        "https://a.b.example.org:8443/",
        "http://plain.example.net/",
    ],
)
def test_an_address_on_the_list_is_taken(url: str) -> None:
    check_url(url, settings(webhook_origins=ORIGINS))


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/",
        "https://hooks.example.com:8443/",
        "https://example.org:8443/",
        "https://evilexample.org:8443/",
        "https://hooks.example.com.evil.net/",
        "https://hooks.example.com@evil.net/",
        "https://user:password@hooks.example.com/",
        "https://evil.net/#hooks.example.com",
        "https://evil.net\\@hooks.example.com/",
        "https://hooks.example.com\n.evil.net/",
        "https://höoks.example.com/",
        "https:///a",
        "ftp://hooks.example.com/",
        "file:///etc/passwd",
        "hooks.example.com",
        "https://hooks.example.com:99999/",
        "https://[::1/",
        "",
        "https://hooks.example.com/" + "a" * 2000,
    ],
)
def test_every_other_address_is_refused(url: str) -> None:
    with pytest.raises(WebhookRefused):
        check_url(url, settings(webhook_origins=ORIGINS))


def test_nothing_is_allowed_until_it_is_configured() -> None:
    with pytest.raises(WebhookRefused, match="WEBHOOK_ORIGINS"):
        check_url("https://hooks.example.com/", settings(webhook_origins=()))
    with pytest.raises(WebhookRefused, match="WEBHOOK_SECRET"):
        check_url("https://hooks.example.com/", settings(webhook_origins=ORIGINS, webhook_secret=None))


def answer_with(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def answer(host: str, port: int, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
    ],
)
def test_a_name_at_an_address_that_is_not_public_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, "93.184.216.34", address)  # one bad address among good ones is enough
    with pytest.raises(WebhookRefused, match="not a public address"):
        resolve("https://hooks.example.com/", settings(webhook_origins=ORIGINS, webhook_private_networks=()))


def test_public_addresses_and_configured_networks_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, "93.184.216.34", "2606:2800:220:1::1")
    target = resolve("https://hooks.example.com/", settings(webhook_origins=ORIGINS, webhook_private_networks=()))
    assert (target.address, target.host, target.port) == ("93.184.216.34", "hooks.example.com", 443)
    answer_with(monkeypatch, "10.1.2.3")
    allowed = settings(webhook_origins=ORIGINS, webhook_private_networks=("10.1.0.0/16",))
    assert resolve("https://hooks.example.com/", allowed).address == "10.1.2.3"


def test_a_name_that_cannot_be_resolved_is_not_the_same_as_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(NameNotResolved):
        resolve("https://hooks.example.com/", settings(webhook_origins=ORIGINS))


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("PAGEMILL_WEBHOOK_ORIGINS", "hooks.example.com, https://*.example.org")
    monkeypatch.setenv("PAGEMILL_WEBHOOK_PRIVATE_NETWORKS", "10.1.0.0/16 fd00::/8")
    read = WebhookSettings()
    assert read.webhook_origins == ("hooks.example.com", "https://*.example.org")
    assert read.webhook_private_networks == ("10.1.0.0/16", "fd00::/8")
    assert SECRET not in repr(read)
    assert read.webhook_secrets == (SECRET,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PAGEMILL_WEBHOOK_SECRET", "short"),
        ("PAGEMILL_WEBHOOK_SECRET", "whsec_c2hvcnQ="),
        ("PAGEMILL_WEBHOOK_PRIVATE_NETWORKS", "10.1.0.0/99"),
    ],
)
def test_settings_that_cannot_hold_are_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as refused:
        WebhookSettings()
    assert "c2hvcnQ" not in str(refused.value)
