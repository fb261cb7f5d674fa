"""The service itself is killed, or its clients misbehave: what it accepted ends once, with the right bytes."""

from __future__ import annotations

import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.api.service.running import Service as RunningService
from tests.api.service.running import running
from tests.api.service.served import Served
from tests.conftest import page_process_pids
from tests.workers.servers import Redis, wait_for
from tests.workers.service import Service, worker
from workers.settings import ServiceSettings
from workers.store import DocumentState
from workers.store.types import FINISHED

Make = Callable[..., Service]
Serve = Callable[[Service], Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts services; what a failed test leaves running is ended."""
    started: list[Served] = []

    def start(service: Service) -> Served:
        started.append(Served(service))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.kill_tree()


@pytest.mark.parametrize("how", ["the service", "whole tree"])
def test_an_embedded_service_that_is_killed_goes_on_at_its_next_start(
    make_service: Make,
    serve: Serve,
    pdfs: dict[int, Path],
    expected: dict[int, bytes],
    how: str,
) -> None:
    """Twenty times at random moments, as long as there is work."""
    service, chance = make_service(), random.Random(how)
    sizes = (9, 3, 40, 2)
    served = serve(service)
    with served.client() as client:
        ids = [post(client, pdfs[size], force="true") for size in sizes]
    for _ in range(20):
        time.sleep(chance.uniform(0.0, 2.0))  # the moment is the point
        if all(service.store.document(id).state in FINISHED for id in ids):
            break
        served.kill() if how == "the service" else served.kill_tree()
        served = serve(service)
    service.wait(*map(service.store.document, ids), seconds=240)
    assert served.terminate() == 0
    for id, size in zip(ids, sizes, strict=True):
        document = service.store.document(id)
        assert document.state is DocumentState.DONE, document.error
        assert service.result(document) == expected[size]
    service.assert_clean([service.store.document(id) for id in ids])


def test_clients_whose_api_is_killed_send_again_and_nothing_is_there_twice(
    make_service: Make,
    serve: Serve,
    redis: Redis,
    pdfs: dict[int, Path],
    expected: dict[int, bytes],
) -> None:
    service, chance = make_service(redis_url=redis.url), random.Random(3)
    address: list[str] = []
    accepted: dict[str, str] = {}
    sizes = {uuid.uuid4().hex: size for size in [1, 2, 3, 1, 2, 9] * 3}

    def send(keys: list[str]) -> None:
        for key in keys:
            while key not in accepted:
                try:
                    with httpx.Client(base_url=address[-1], timeout=20) as client:
                        accepted[key] = post(client, pdfs[sizes[key]], {"Idempotency-Key": key}, force="true")
                except httpx.TransportError:
                    time.sleep(0.05)  # the API is being started again

    with worker(service, concurrency=1):
        served = serve(service)
        address.append(served.url)
        keys = list(sizes)
        clients = [threading.Thread(target=send, args=(keys[n::3],), daemon=True) for n in range(3)]
        for client in clients:
            client.start()
        for _ in range(20):
            if not any(client.is_alive() for client in clients):
                break
            time.sleep(chance.uniform(0.0, 0.6))  # the moment is the point
            served.kill()
            served = serve(service)
            address.append(served.url)
        for client in clients:
            client.join(120)
        assert accepted.keys() == sizes.keys()
        documents = [service.store.document(id) for id in accepted.values()]
        service.wait(*documents, seconds=240)
        listed = service.store.list_documents(limit=1000)
        assert sorted(document.id for document in listed.documents) == sorted(accepted.values())
        assert served.terminate() == 0
    for key, id in accepted.items():
        assert service.result(service.store.document(id)) == expected[sizes[key]]
    # What a killed API had half written is the sweeper's to remove, in its time.
    service.artifacts.sweep(datetime.now(UTC) + timedelta(hours=1))
    service.assert_clean([service.store.document(id) for id in accepted.values()])


def test_a_client_that_reads_a_result_slowly_holds_up_nobody(
    make_service: Make,
    serve: Serve,
    pdfs: dict[int, Path],
    expected: dict[int, bytes],
) -> None:
    service = make_service()
    served = serve(service)
    with served.client() as client:
        id = post(client, pdfs[40], wait="60")
        service.wait(service.store.document(id))
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            slow.sendall(f"GET /v1/documents/{id}/result?format=zip HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert slow.recv(10)
            assert client.get(f"/v1/documents/{id}/result").content == expected[40]
            other = post(client, pdfs[2], wait="60")
            assert client.get(f"/v1/documents/{other}").json()["state"] == "done"
            # The reader that never reads on is no reason not to stop.
            assert served.terminate() == 0


def test_every_hostile_file_ends_with_its_code_or_a_result(corpus: Path, tmp_path: Path) -> None:
    from workers.runtime import EmbeddedRuntime

    codes = {"empty.pdf": "empty_file", "fake.pdf": "not_a_pdf", "password.pdf": "encrypted"}
    settings = ServiceSettings(data_dir=tmp_path)
    files = sorted((corpus / "hostile").iterdir())
    before = page_process_pids()
    with running(tmp_path, settings) as service:
        with EmbeddedRuntime(settings, 1, store=service.store, artifacts=service.artifacts), service.client() as client:
            ids = {path.name: post(client, path) for path in files}
            wait_for(lambda: all(state(client, id) in map(str, FINISHED) for id in ids.values()), "all end", 240)
            for name, id in ids.items():
                document = client.get(f"/v1/documents/{id}").json()
                if name in codes:
                    assert (document["state"], document["error"]["code"]) == ("failed", codes[name])
                else:
                    assert document["state"] == "done", document
        assert half_written(service) == [] and set(page_process_pids()) <= set(before)


def post(client: httpx.Client, path: Path, headers: dict[str, str] | None = None, **options: str) -> str:
    files = {"files": (path.name, path.read_bytes())}
    answer = client.post("/v1/documents", files=files, data=options, headers=headers)
    assert answer.status_code in (200, 202), answer.text
    return str(answer.json()["documents"][0]["id"])


def state(client: httpx.Client, id: str) -> str:
    return str(client.get(f"/v1/documents/{id}").json()["state"])


def half_written(service: RunningService) -> list[str]:
    return [name for name in service.files() if name.endswith(".part")]
