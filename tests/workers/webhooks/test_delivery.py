"""What a receiver of webhooks can rely on: a real job store, a real HTTP server on the loopback."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from tests.workers.webhooks.receiver import receiver
from workers.store import Document, JobKind, JobStore, NewDocument
from workers.store.states import Problem
from workers.webhooks import Webhooks, WebhookSettings
from workers.webhooks.delivery import _trusted

SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSB0ZXN0cywgMjQgYnl0ZXM="
OTHER = "whsec_" + "YW5vdGhlciBzZWNyZXQgb2YgdGhlIHRlc3RzLCAyNA=="


class World:
    """A job store whose clock the test moves."""

    def __init__(self, folder: Path) -> None:
        self.clock = time.time()
        self.store = JobStore.open(f"sqlite:///{folder}/store.db", clock=lambda: self.clock)

    def failed_document(self, url: str) -> Document:
        document = self.store.accept(NewDocument("", "letter.pdf", "ab" * 32, 10, webhook_url=url))
        claim = self.store.claim([JobKind.PREPARE], "worker", 60)
        assert claim is not None
        self.store.job_failed(claim, Problem("damaged", "It is damaged."))
        return document

    def webhooks(self, **changes: Any) -> Webhooks:
        return Webhooks(self.store, settings(**changes))


def settings(**changes: Any) -> WebhookSettings:
    values: dict[str, Any] = {
        "webhook_secret": SECRET,
        "webhook_origins": ("http://127.0.0.1:*",),
        "webhook_private_networks": ("127.0.0.0/8",),
        "webhook_retry_seconds": (10.0, 100.0),
        "webhook_timeout_seconds": 5,
    }
    return WebhookSettings(**{**values, **changes})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.store.close()


def test_the_end_of_a_document_is_told_once(world: World) -> None:
    with receiver() as hook:
        document = world.failed_document(hook.url("/path?x=1"))
        webhooks = world.webhooks()
        assert webhooks.deliver_due() == 1
        call = hook.calls.get(timeout=5)
        assert webhooks.deliver_due() == 0
        world.clock += 10_000
        assert webhooks.deliver_due() == 0
    assert call.path == "/path?x=1"
    assert call.headers["host"] == f"127.0.0.1:{hook.port}"
    told = json.loads(call.body)
    assert told["type"] == "document.failed"
    assert told["data"]["id"] == document.id
    assert (told["data"]["state"], told["data"]["error_code"]) == ("failed", "damaged")
    assert datetime.fromisoformat(told["timestamp"]).tzinfo is not None


def test_a_receiver_can_check_who_called(world: World) -> None:
    """The example of a receiver: the body as it came, the headers, and the shared secret."""
    with receiver() as hook:
        world.failed_document(hook.url())
        world.webhooks().deliver_due()
        call = hook.calls.get(timeout=5)
    told = Webhook(SECRET).verify(call.body, call.headers)
    assert told["type"] == "document.failed"
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(call.body.replace(b"failed", b"done"), call.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(call.body, call.headers)
    old = str(int((datetime.now(UTC) - timedelta(hours=1)).timestamp()))
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(call.body, {**call.headers, "webhook-timestamp": old})


def test_while_a_secret_is_changed_both_verify(world: World) -> None:
    with receiver() as hook:
        world.failed_document(hook.url())
        world.webhooks(webhook_secret=f"{OTHER} {SECRET}").deliver_due()
        call = hook.calls.get(timeout=5)
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(call.body, call.headers)


def test_a_call_that_is_not_taken_is_made_again_under_the_same_id(world: World) -> None:
    with receiver((500, {}), (503, {})) as hook:
        world.failed_document(hook.url())
        webhooks = world.webhooks()
        webhooks.deliver_due()
        world.clock += 9
        assert webhooks.deliver_due() == 0  # not before its pause is over
        world.clock += 4
        assert webhooks.deliver_due() == 1
        world.clock += 121
        assert webhooks.deliver_due() == 1
        calls = [hook.calls.get(timeout=5) for _ in range(3)]
        world.clock += 10_000
        assert webhooks.deliver_due() == 0
    assert len({call.headers["webhook-id"] for call in calls}) == 1
    for call in calls:
        Webhook(SECRET).verify(call.body, call.headers)


def test_after_the_last_pause_it_is_given_up(world: World) -> None:
    with receiver(*[(500, {})] * 10) as hook:
        world.failed_document(hook.url())
        webhooks = world.webhooks()
        for _ in range(10):
            webhooks.deliver_due()
            world.clock += 10_000
        assert hook.calls.qsize() == 3


def test_a_receiver_that_is_gone_is_left_alone(world: World) -> None:
    with receiver((410, {})) as hook:
        world.failed_document(hook.url())
        webhooks = world.webhooks()
        webhooks.deliver_due()
        world.clock += 10_000
        assert webhooks.deliver_due() == 0


def test_a_receiver_may_ask_for_a_longer_pause(world: World) -> None:
    with receiver((429, {"retry-after": "500"})) as hook:
        world.failed_document(hook.url())
        webhooks = world.webhooks()
        webhooks.deliver_due()
        world.clock += 499
        assert webhooks.deliver_due() == 0
        world.clock += 2
        assert webhooks.deliver_due() == 1


def test_a_receiver_that_does_not_listen_yet_gets_it_later(world: World) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world.failed_document(f"http://127.0.0.1:{port}/")
    webhooks = world.webhooks()
    assert webhooks.deliver_due() == 1
    world.clock += 13
    assert webhooks.deliver_due() == 1


def test_a_redirect_is_not_followed(world: World) -> None:
    with receiver() as inside, receiver((302, {"location": inside.url()})) as hook:
        world.failed_document(hook.url())
        world.webhooks().deliver_due()
        assert hook.calls.qsize() == 1
        assert inside.calls.qsize() == 0


def test_an_address_outside_the_allowed_networks_is_never_called(world: World) -> None:
    with receiver() as hook:
        world.failed_document(hook.url())
        webhooks = world.webhooks(webhook_private_networks=())
        assert webhooks.deliver_due() == 1
        world.clock += 10_000
        assert webhooks.deliver_due() == 0  # another try cannot help
        assert hook.calls.qsize() == 0


def test_the_name_is_looked_up_once_so_that_it_cannot_change_after_the_check(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "hooks.test":
            asked.append(host)
            return real("127.0.0.1" if len(asked) == 1 else "127.0.0.99", *arguments, **options)
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with receiver() as hook:
        world.failed_document(hook.url(host="hooks.test"))
        world.webhooks(webhook_origins=("http://hooks.test:*",)).deliver_due()
        call = hook.calls.get(timeout=5)
    assert asked == ["hooks.test"]
    assert call.headers["host"] == f"hooks.test:{hook.port}"


def test_over_tls_the_certificate_must_be_that_of_the_name(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed("hooks.test", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    _trusted.cache_clear()
    real = socket.getaddrinfo

    def local(host: Any, *arguments: Any, **options: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".test") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receiver(tls=context) as hook:
        webhooks = world.webhooks(webhook_origins=(f"*.test:{hook.port}",))
        world.failed_document(hook.url(host="other.test", scheme="https"))
        webhooks.deliver_due()
        assert hook.calls.qsize() == 0
        document = world.store.accept(
            NewDocument("", "b.pdf", "cd" * 32, 10, webhook_url=hook.url(host="hooks.test", scheme="https"))
        )
        world.store.cancel(document.id)
        webhooks.deliver_due()
        assert json.loads(hook.calls.get(timeout=5).body)["type"] == "document.cancelled"
    _trusted.cache_clear()


def self_signed(name: str, folder: Path) -> Path:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_the_loop_delivers_what_comes_and_a_slow_receiver_holds_up_no_other(world: World) -> None:
    with receiver() as hook, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes the connection, never answers
        stop = threading.Event()
        webhooks = world.webhooks(webhook_timeout_seconds=5)
        loop = threading.Thread(target=webhooks.run, args=(stop,))
        world.failed_document(f"http://127.0.0.1:{silent.getsockname()[1]}/")
        loop.start()
        connection, _ = silent.accept()  # the slow call is under way
        world.store.cancel(world.store.accept(NewDocument("", "b.pdf", "cd" * 32, 1, webhook_url=hook.url())).id)
        assert json.loads(hook.calls.get(timeout=4).body)["type"] == "document.cancelled"
        connection.close()
        stop.set()
        loop.join()


def test_what_was_due_while_nobody_ran_is_delivered_by_the_next(world: World) -> None:
    with receiver() as hook:
        world.failed_document(hook.url())
        taken = world.store.due_deliveries()  # by a process that died right then
        assert len(taken) == 1
        assert world.webhooks().deliver_due() == 0
        world.clock += 200
        assert world.webhooks().deliver_due() == 1
        assert hook.calls.qsize() == 1
