"""What those who submit documents can rely on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.document import BadPage
from pipeline.options import ParseOptions
from pipeline.page_model import Route
from tests.workers.store.work import do_all, do_pages, do_window, open_document, record, take
from workers.store import (
    DocumentState,
    EventKind,
    IdempotencyConflict,
    JobKind,
    JobStore,
    NewDocument,
    NotFinished,
    NotFound,
    NotRetryable,
    PageStatus,
)
from workers.store.states import Problem

New = Callable[..., NewDocument]


def kinds(store: JobStore, document_id: str) -> list[EventKind]:
    return [event.kind for event in store.events_after(document_id)]


def test_a_document_goes_through_its_states_and_ends_done(store: JobStore, new: New) -> None:
    document = store.accept(new(name="report.pdf"))
    assert document.state is DocumentState.QUEUED
    do_all(store, pages=6)
    done = store.document(document.id)
    assert (done.state, done.pages_total, done.pages_done, done.pages_failed) == (DocumentState.DONE, 6, 6, 0)
    assert kinds(store, document.id) == ["accepted", "preparing", "opened", *["page"] * 6, "assembling", "done"]
    assert [page.state for page in store.pages(document.id)] == [PageStatus.DONE] * 6
    assert store.page(document.id, 3).route == "flash"


def test_the_first_page_is_a_window_of_its_own(store: JobStore, new: New) -> None:
    store.accept(new())
    open_document(store, pages=6)
    assert [take(store, JobKind.PAGE).pages for _ in range(3)] == [(0,), (1, 2, 3, 4), (5,)]


def test_a_page_that_preflight_refused_makes_it_partial(store: JobStore, new: New) -> None:
    document = store.accept(new())
    open_document(store, pages=3, bad=(BadPage(1, "damaged", "Page 2 is damaged."),))
    do_pages(store)
    store.assembled(take(store, JobKind.ASSEMBLE))
    end = store.document(document.id)
    assert (end.state, end.error_code, end.pages_done) == (DocumentState.PARTIAL, "damaged", 2)
    assert store.page(document.id, 1).state is PageStatus.FAILED


def test_equal_bytes_and_options_are_parsed_once(store: JobStore, new: New) -> None:
    first = store.accept(new(sha256="a" * 64))
    second = store.accept(new(tenant="other", sha256="a" * 64))
    do_all(store, pages=2)
    third = store.accept(new(sha256="a" * 64))
    assert {store.document(d.id).state for d in (first, second, third)} == {DocumentState.DONE}
    assert third.state is DocumentState.DONE and third.job_key == first.job_key == second.job_key
    assert store.claim(list(JobKind), "w", 30) is None
    assert kinds(store, third.id) == ["accepted", "done"]


@pytest.mark.parametrize(
    "options", [ParseOptions(pages="1"), ParseOptions(password="x"), ParseOptions(force=True)], ids=lambda o: str(o)
)
def test_other_options_another_password_or_force_make_a_job_of_their_own(
    store: JobStore, new: New, options: ParseOptions
) -> None:
    first = store.accept(new(sha256="b" * 64))
    do_all(store, pages=1)
    second = store.accept(new(sha256="b" * 64, options=options))
    assert second.state is DocumentState.QUEUED and second.job_key != first.job_key


def test_a_failed_job_is_not_shared_with_later_documents(store: JobStore, new: New) -> None:
    first = store.accept(new(sha256="c" * 64))
    store.job_failed(take(store, JobKind.PREPARE), Problem("damaged", "It is damaged."))
    assert store.document(first.id).error_code == "damaged"
    assert store.accept(new(sha256="c" * 64)).state is DocumentState.QUEUED


def test_the_password_reaches_the_worker_and_is_erased_at_the_end(store: JobStore, new: New) -> None:
    document = store.accept(new(options=ParseOptions(password="secret")))
    assert document.options.password is None
    claim = take(store, JobKind.PREPARE)
    assert claim.options.password == "secret"
    store.job_failed(claim, Problem("encrypted", "Wrong password."))
    with pytest.raises(NotRetryable):
        store.retry(document.id)


def test_the_same_idempotency_key_gives_the_same_document(store: JobStore, new: New) -> None:
    first = store.accept(new(tenant="t", sha256="d" * 64, idempotency_key="k"))
    assert store.accept(new(tenant="t", sha256="d" * 64, idempotency_key="k")).id == first.id
    assert store.accept(new(tenant="u", sha256="d" * 64, idempotency_key="k")).id != first.id
    with pytest.raises(IdempotencyConflict):
        store.accept(new(tenant="t", sha256="e" * 64, idempotency_key="k"))


def test_another_tenants_document_is_not_found(store: JobStore, new: New) -> None:
    document = store.accept(new(tenant="a"))
    assert store.document(document.id, "a").id == document.id
    for ask in (store.document, store.pages, store.cancel, store.retry, store.remove):
        with pytest.raises(NotFound):
            ask(document.id, "b")
    assert store.list_documents(tenant="b").documents == ()


def test_lists_are_cut_into_pages_and_filtered(store: JobStore, new: New) -> None:
    batch = store.create_batch("", "holiday")
    ids = [store.accept(new(batch_id=batch.id if n % 2 else None)).id for n in range(5)]
    first = store.list_documents(limit=3)
    second = store.list_documents(limit=3, cursor=first.next_cursor)
    assert sorted(d.id for d in (*first.documents, *second.documents)) == sorted(ids)
    assert second.next_cursor is None
    assert {d.id for d in store.list_documents(batch=batch.id).documents} == {ids[1], ids[3]}
    assert store.list_documents(state=DocumentState.DONE).documents == ()
    assert store.batch(batch.id).counts == {"queued": 2}


def test_a_batch_that_is_not_there_is_refused(store: JobStore, new: New) -> None:
    with pytest.raises(NotFound):
        store.accept(new(batch_id="batch_none"))
    with pytest.raises(NotFound):
        store.batch("batch_none")


def test_positions_count_what_comes_before(store: JobStore, new: New) -> None:
    first, second, urgent = store.accept(new()), store.accept(new()), store.accept(new(priority=5))
    assert [store.queue_position(d.id) for d in (urgent, first, second)] == [1, 2, 3]
    open_document(store, pages=1)
    assert store.queue_position(urgent.id) == 0


def test_a_queued_document_is_cancelled_at_once(store: JobStore, new: New) -> None:
    document = store.accept(new())
    assert store.cancel(document.id).state is DocumentState.CANCELLED
    assert store.claim(list(JobKind), "w", 30) is None
    assert store.cancel(document.id).state is DocumentState.CANCELLED


@pytest.mark.parametrize("kind", list(JobKind))
def test_a_document_under_way_is_cancelled_when_its_worker_lets_go(store: JobStore, new: New, kind: JobKind) -> None:
    options = ParseOptions(route=Route.VLM) if kind is JobKind.RECOGNISE else ParseOptions()
    document = store.accept(new(options=options))
    if kind is JobKind.PREPARE:
        claim = take(store, kind)
    else:
        open_document(store, pages=5)
        if kind is JobKind.ASSEMBLE:
            do_pages(store)
        claim = take(store, kind)
    assert store.cancel(document.id).state is DocumentState.CANCELLING
    assert store.unwanted([claim.job_key]) == {claim.job_key}
    store.give_back(claim)
    assert store.document(document.id).state is DocumentState.CANCELLED
    assert store.claim(list(JobKind), "w", 30) is None


def test_cancelling_one_document_leaves_the_work_to_the_other(store: JobStore, new: New) -> None:
    first, second = store.accept(new(sha256="f" * 64)), store.accept(new(sha256="f" * 64))
    claim = open_document(store, pages=1)
    assert store.cancel(first.id).state is DocumentState.CANCELLED
    assert store.unwanted([claim.job_key]) == set()
    do_pages(store)
    store.assembled(take(store, JobKind.ASSEMBLE))
    assert store.document(second.id).state is DocumentState.DONE
    assert store.document(first.id).state is DocumentState.CANCELLED


def test_a_retry_keeps_finished_pages_and_does_the_failed_ones(store: JobStore, new: New) -> None:
    document = store.accept(new())
    open_document(store, pages=5)
    do_window(store, take(store, JobKind.PAGE))
    claim = take(store, JobKind.PAGE)
    for index in claim.pages:
        store.page_finished(claim, record(index, "page_failed" if index == 2 else None))
    store.window_ended(claim)
    store.assembled(take(store, JobKind.ASSEMBLE))
    assert store.document(document.id).state is DocumentState.PARTIAL
    assert store.retry(document.id).state is DocumentState.RUNNING
    again = take(store, JobKind.PAGE)
    assert again.pages == (2,)
    do_window(store, again)
    store.assembled(take(store, JobKind.ASSEMBLE))
    end = store.document(document.id)
    assert (end.state, end.pages_done, end.error_code) == (DocumentState.DONE, 5, None)


def test_a_cancelled_document_goes_on_where_it_was(store: JobStore, new: New) -> None:
    document = store.accept(new())
    open_document(store, pages=5)
    do_window(store, take(store, JobKind.PAGE))
    store.cancel(document.id)
    store.retry(document.id)
    assert take(store, JobKind.PAGE).pages == (1, 2, 3, 4)
    with pytest.raises(NotRetryable):
        done = store.accept(new())
        store.cancel(document.id)
        do_all(store, pages=1)
        store.retry(done.id)


def test_only_finished_documents_are_removed_and_the_last_one_takes_the_job(store: JobStore, new: New) -> None:
    first, second = store.accept(new(sha256="1" * 64)), store.accept(new(sha256="1" * 64))
    with pytest.raises(NotFinished):
        store.remove(first.id)
    do_all(store, pages=2)
    removed = store.remove(first.id)
    assert (removed.job_key, removed.input_sha256) == (None, None)
    removed = store.remove(second.id)
    assert (removed.job_key, removed.input_sha256) == (second.job_key, "1" * 64)
    with pytest.raises(NotFound):
        store.document(second.id)
    assert store.accept(new(sha256="1" * 64)).job_key != second.job_key


def test_an_expired_result_is_not_shared(store: JobStore, new: New) -> None:
    document = store.accept(new(sha256="2" * 64))
    assert not store.expire(document.job_key)
    do_all(store, pages=1)
    assert store.expirable_jobs() == [document.job_key]
    assert store.expire(document.job_key) and store.document(document.id).expired
    assert store.expirable_jobs() == [] and not store.job_known(document.job_key)
    assert store.accept(new(sha256="2" * 64)).state is DocumentState.QUEUED


def test_the_end_of_a_document_with_a_webhook_is_due_until_it_is_delivered(
    store: JobStore, new: New, clock: Callable[[], float]
) -> None:
    store.accept(new(webhook_url="https://example.org/hook"))
    assert store.due_deliveries() == []
    do_all(store, pages=1)
    (delivery,) = store.due_deliveries(hold_seconds=60)
    assert (delivery.event.kind, delivery.url, delivery.attempt) == ("done", "https://example.org/hook", 1)
    assert store.due_deliveries() == []
    clock.now += 61  # type: ignore[attr-defined]
    (again,) = store.due_deliveries()
    store.delivery_failed(again.id, "503", retry_in=5)
    clock.now += 6  # type: ignore[attr-defined]
    (third,) = store.due_deliveries()
    assert third.attempt == 3
    store.delivered(third.id)
    clock.now += 1000  # type: ignore[attr-defined]
    assert store.due_deliveries() == []
