"""Real workers, a real Redis, killed and cut off at any moment: every document ends once, with the right bytes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.options import ParseOptions
from tests.workers.servers import Postgres, Redis, wait_for
from tests.workers.service import Service, WorkerProcess, worker
from workers.store import Document, DocumentState
from workers.store.types import FINISHED
from workers.tokens import Tokens

Make = Callable[..., Service]


@pytest.fixture
def distributed(make_service: Make, redis: Redis) -> Iterator[Service]:
    """A service with a broker, told of what it accepts as an API process tells."""
    # Twenty kills may all hit the same piece of work.
    service = make_service(redis_url=redis.url, max_attempts=25)
    tokens = Tokens(service.settings, service.store)
    tokens.start()
    yield service
    tokens.stop()


def submit(service: Service, pdfs: dict[int, Path], *sizes: int) -> list[Document]:
    return [service.submit(pdfs[pages], ParseOptions(force=True)) for pages in sizes]


def all_done(service: Service, documents: list[Document]) -> bool:
    return all(service.state(document) in FINISHED for document in documents)


def check(service: Service, documents: list[Document], expected: dict[int, bytes]) -> None:
    for document in documents:
        end = service.store.document(document.id)
        assert end.state is DocumentState.DONE, f"{end.state}: {end.error}"
        assert service.result(document) == expected[end.pages_total or 0]
    service.assert_clean(documents)


def test_a_worker_does_what_was_queued_before_and_after_it_came(
    distributed: Service, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    documents = submit(distributed, pdfs, 3, 1)
    with worker(distributed):
        documents += submit(distributed, pdfs, 2)
        distributed.wait(*documents)
        assert [info.queues for info in distributed.store.workers()] == [("prepare", "page", "recognise", "assemble")]
    assert distributed.store.workers() == []
    check(distributed, documents, expected)


def test_a_worker_told_to_stop_hands_back_what_it_holds_and_another_goes_on(
    distributed: Service, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    documents = submit(distributed, pdfs, 40)
    with worker(distributed) as first:
        wait_for(lambda: distributed.store.document(documents[0].id).pages_done > 2, "pages are done", 60)
        assert first.terminate() == 0
    assert distributed.store.counts().leased.get("page", 0) == 0
    done = distributed.store.document(documents[0].id).pages_done
    assert done < 40
    with worker(distributed, concurrency=2):
        distributed.wait(*documents)
    check(distributed, documents, expected)


@pytest.mark.parametrize("how", ["worker", "page process", "whole tree"])
def test_whoever_is_killed_in_the_middle_of_it(
    distributed: Service, pdfs: dict[int, Path], expected: dict[int, bytes], how: str
) -> None:
    """Twenty times at random moments, as long as there is work."""
    chance = random.Random(how)
    documents = submit(distributed, pdfs, 9, 3, 40, 2)
    running = WorkerProcess(distributed)
    try:
        for _ in range(20):
            wait_for(running.is_up, "the worker is up", 60)
            if all_done(distributed, documents):
                break
            time.sleep(chance.uniform(0.0, 2.0))  # the moment is the point
            if how == "page process":
                running.kill_a_page_process()
                continue
            if how == "worker":
                running.kill()
            else:
                running.kill_tree()
            running = WorkerProcess(distributed)
        distributed.wait(*documents, seconds=240)
        wait_for(running.is_up, "the worker is up", 60)
        running.terminate()
    finally:
        if running.process.poll() is None:
            running.kill_tree()
    check(distributed, documents, expected)


def test_redis_is_killed_and_comes_back_empty(
    distributed: Service, redis: Redis, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    with worker(distributed, concurrency=1):
        documents = submit(distributed, pdfs, 40)
        wait_for(lambda: distributed.store.document(documents[0].id).pages_done > 0, "a page is done", 60)
        redis.kill()
        documents += submit(distributed, pdfs, 3, 2)
        assert distributed.state(documents[-1]) is DocumentState.QUEUED
        redis.start()
        distributed.wait(*documents, seconds=180)
    check(distributed, documents, expected)


def test_redis_does_not_answer_for_a_while(
    distributed: Service, redis: Redis, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    with worker(distributed):
        documents = submit(distributed, pdfs, 2)
        distributed.wait(*documents)
        with redis.unreachable():
            started = time.monotonic()
            documents += submit(distributed, pdfs, 3, 1)
            assert time.monotonic() - started < 5, "nobody who submits waits for the broker"
            time.sleep(30)  # longer than every time-out of its connections
        distributed.wait(*documents, seconds=180)
    check(distributed, documents, expected)


def test_postgresql_is_restarted_in_the_middle(
    make_service: Make, redis: Redis, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    postgres = Postgres()
    postgres.start()
    try:
        service = make_service(redis_url=redis.url, database_url=postgres.url)
        with worker(service):
            documents = submit(service, pdfs, 40)
            wait_for(lambda: service.store.document(documents[0].id).pages_done > 2, "pages are done", 60)
            for _ in range(2):
                postgres.stop()
                postgres.start()
                documents += submit(service, pdfs, 2)
            service.wait(*documents, seconds=180)
        check(service, documents, expected)
        service.store.close()
    finally:
        postgres.remove()


def test_several_workers_share_one_postgresql(
    make_service: Make, redis: Redis, postgres: Postgres, pdfs: dict[int, Path], expected: dict[int, bytes]
) -> None:
    service = make_service(redis_url=redis.url, database_url=postgres.fresh_database("several"))
    documents = submit(service, pdfs, 9, 3, 2, 1, 3, 2, 1, 2)
    with worker(service), worker(service):
        service.wait(*documents, seconds=180)
    check(service, documents, expected)
    service.store.close()
