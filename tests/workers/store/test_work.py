"""What workers can rely on: leases, fairness, attempts, the reaper."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.options import ParseOptions
from pipeline.page_model import Route
from tests.workers.store.conftest import Clock
from tests.workers.store.work import LEASE, do_all, do_pages, do_window, open_document, record, take
from workers.store import Claim, DocumentState, JobKind, JobStore, LeaseLost, NewDocument, PageStatus
from workers.store.fleet import Presence
from workers.store.models import SCHEMA_REVISION
from workers.store.states import Problem

New = Callable[..., NewDocument]
CRASH = Problem("page_crashed", "The page process died.")


def page_codes(store: JobStore, document_id: str) -> list[str | None]:
    return [page.error_code for page in store.pages(document_id)]


def test_a_piece_is_claimed_once(store: JobStore, new: New) -> None:
    for _ in range(8):
        store.accept(new())
    claims: list[Claim] = []
    barrier = threading.Barrier(4)

    def claim_all(worker: str) -> None:
        barrier.wait()
        while (claim := store.claim([JobKind.PREPARE], worker, LEASE)) is not None:
            claims.append(claim)

    threads = [threading.Thread(target=claim_all, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims) == len({claim.job_key for claim in claims}) == 8


def test_a_letter_is_not_starved_by_a_book(store: JobStore, new: New) -> None:
    book = store.accept(new())
    open_document(store, pages=400)
    for _ in range(3):
        do_window(store, take(store, JobKind.PAGE))
    letter = store.accept(new())
    open_document(store, pages=2)
    windows = 0
    while store.document(letter.id).state is DocumentState.RUNNING:
        do_window(store, take(store, JobKind.PAGE))
        windows += 1
    assert windows <= 4, "the letter's two windows take turns with the book's"
    assert store.document(book.id).state is DocumentState.RUNNING


def test_a_stream_of_letters_does_not_starve_a_book(store: JobStore, new: New) -> None:
    book = store.accept(new())
    open_document(store, pages=400)
    before = store.document(book.id).pages_done
    for _ in range(20):
        store.accept(new())
        open_document(store, pages=1)
        do_window(store, take(store, JobKind.PAGE))
    assert store.document(book.id).pages_done - before >= 9, "more than two of its windows had a turn"


def test_tenants_take_turns_whatever_they_have_queued(store: JobStore, new: New) -> None:
    for _ in range(6):
        store.accept(new(tenant="many"))
    few = store.accept(new(tenant="few"))
    claimed = [take(store, JobKind.PREPARE).job_key for _ in range(2)]
    assert few.job_key in claimed


def test_higher_priority_goes_first(store: JobStore, new: New) -> None:
    store.accept(new())
    urgent = store.accept(new(priority=9))
    assert take(store, JobKind.PREPARE).job_key == urgent.job_key


def test_work_that_waits_for_its_time_holds_up_nothing_below_it(store: JobStore, new: New) -> None:
    mine, yours = store.accept(new(tenant="a")), store.accept(new(tenant="b", priority=3))
    store.accept(new(tenant="a", priority=9))
    store.try_again(take(store, JobKind.PREPARE), Problem("disk_full", "No room."), max_attempts=9)
    assert [take(store, JobKind.PREPARE).job_key for _ in range(2)] == [yours.job_key, mine.job_key]
    assert store.claim([JobKind.PREPARE], "w1", LEASE) is None


def test_joining_a_job_with_a_higher_priority_raises_it(store: JobStore, new: New) -> None:
    store.accept(new())
    second = store.accept(new(sha256="9" * 64))
    store.accept(new(sha256="9" * 64, priority=3))
    assert take(store, JobKind.PREPARE).job_key == second.job_key


def test_a_lease_that_is_over_goes_to_another_worker_and_the_first_is_refused(
    store: JobStore, new: New, clock: Clock
) -> None:
    document = store.accept(new())
    open_document(store, pages=1)
    lost = take(store, JobKind.PAGE)
    assert store.reap(max_losses=10) == 0
    clock.now += LEASE + 1
    assert store.reap(max_losses=10) == 1
    with pytest.raises(LeaseLost):
        store.page_finished(lost, record(0))
    second = take(store, JobKind.PAGE, "w2")
    with pytest.raises(LeaseLost):
        store.window_ended(lost)
    assert store.heartbeat([lost, second]) == {second.token}
    do_window(store, second)
    store.assembled(take(store, JobKind.ASSEMBLE))
    assert store.document(document.id).pages_done == 1


def test_a_heartbeat_keeps_the_lease(store: JobStore, new: New, clock: Clock) -> None:
    store.accept(new())
    claim = take(store, JobKind.PREPARE)
    for _ in range(5):
        clock.now += LEASE * 0.9
        assert store.heartbeat([claim]) == {claim.token}
        assert store.reap(max_losses=10) == 0


def test_a_clock_set_back_does_not_keep_a_dead_workers_lease(store: JobStore, new: New, clock: Clock) -> None:
    store.accept(new())
    take(store, JobKind.PREPARE)
    clock.now -= 3600
    assert store.reap(max_losses=10) == 1
    assert store.lead("reaper", "a", 10)
    clock.now -= 3600
    assert store.lead("reaper", "b", 10)


def test_the_leases_of_a_worker_known_to_be_dead_are_reaped_at_once(store: JobStore, new: New) -> None:
    store.accept(new())
    take(store, JobKind.PREPARE, "dead")
    assert store.reap(max_losses=10, dead_workers=["alive"]) == 0
    assert store.reap(max_losses=10, dead_workers=["dead"]) == 1


def test_what_is_finished_of_a_lost_window_is_not_done_again(store: JobStore, new: New, clock: Clock) -> None:
    store.accept(new())
    open_document(store, pages=5)
    do_window(store, take(store, JobKind.PAGE))
    claim = take(store, JobKind.PAGE)
    store.page_finished(claim, record(3))
    store.page_finished(claim, record(1))
    clock.now += LEASE + 1
    store.reap(max_losses=10)
    assert take(store, JobKind.PAGE).pages == (2, 4)


def test_work_that_loses_every_worker_is_parked_with_an_error(store: JobStore, new: New, clock: Clock) -> None:
    document = store.accept(new())
    open_document(store, pages=1)
    for _ in range(3):
        take(store, JobKind.PAGE)
        clock.now += LEASE + 1
        store.reap(max_losses=3)
    assert page_codes(store, document.id) == ["worker_lost"]
    store.assembled(take(store, JobKind.ASSEMBLE))
    assert store.document(document.id).state is DocumentState.FAILED


def test_a_lost_window_is_tried_page_by_page_and_only_the_bad_page_fails(store: JobStore, new: New) -> None:
    document = store.accept(new())
    open_document(store, pages=4)
    do_window(store, take(store, JobKind.PAGE))
    window = take(store, JobKind.PAGE)
    store.page_finished(window, record(1))
    store.window_ended(window, CRASH, crashed=True)
    first, second = take(store, JobKind.PAGE), take(store, JobKind.PAGE)
    assert (first.pages, second.pages) == ((2,), (3,))
    do_window(store, first)
    store.window_ended(second, CRASH, crashed=True)
    last = take(store, JobKind.PAGE)
    assert (last.pages, last.attempt) == ((3,), 2)
    store.window_ended(last, CRASH, crashed=True)
    assert page_codes(store, document.id) == [None, None, None, "page_crashed"]
    store.assembled(take(store, JobKind.ASSEMBLE))
    assert store.document(document.id).state is DocumentState.PARTIAL


def test_trouble_that_may_pass_is_tried_again_later_and_not_for_ever(store: JobStore, new: New, clock: Clock) -> None:
    document = store.accept(new())
    full = Problem("disk_full", "The disk is full.")
    for _ in range(3):
        store.try_again(take(store, JobKind.PREPARE), full, max_attempts=4)
        assert store.claim([JobKind.PREPARE], "w1", LEASE) is None, "it waits a moment"
        clock.now += 60
    store.try_again(take(store, JobKind.PREPARE), full, max_attempts=4)
    end = store.document(document.id)
    assert (end.state, end.error_code) == (DocumentState.FAILED, "disk_full")


def test_a_report_that_comes_twice_counts_once(store: JobStore, new: New) -> None:
    document = store.accept(new())
    prepare = open_document(store, pages=1)
    store.opened(prepare, page_count=1, source_kind="pdf", selected=[0], bad=[], windows=[(0,)])
    claim = take(store, JobKind.PAGE)
    for _ in range(2):
        store.page_finished(claim, record(0))
    for _ in range(2):
        store.window_ended(claim)
    assemble = take(store, JobKind.ASSEMBLE)
    for _ in range(2):
        store.assembled(assemble)
    end = store.document(document.id)
    assert (end.state, end.pages_done) == (DocumentState.DONE, 1)
    assert store.counts().queued.get("page", 0) == 0


def test_counts_say_what_waits_and_what_is_held(store: JobStore, new: New) -> None:
    store.accept(new())
    store.accept(new())
    open_document(store, pages=9)
    take(store, JobKind.PAGE)
    counts = store.counts()
    assert counts.documents == {"queued": 1, "running": 1}
    assert (counts.queued["prepare"], counts.queued["page"], counts.leased["page"]) == (1, 2, 1)
    assert counts.pages_waiting == 9
    assert store.claimable() == {JobKind.PREPARE: 1, JobKind.PAGE: 2}


def test_workers_are_alive_while_they_say_so(store: JobStore, clock: Clock) -> None:
    presence = Presence("w1", "host", "place", 1, 1.0, ("page",), 2)
    store.worker_seen(presence)
    assert [worker.id for worker in store.workers()] == ["w1"]
    clock.now += 100
    assert store.workers() == []
    store.worker_seen(presence)
    assert store.workers()[0].queues == ("page",)
    assert store.neighbours("place") == [presence] and store.neighbours("elsewhere") == []
    store.worker_left("w1")
    assert store.workers(None) == []


def test_one_leads_until_it_falls_silent(store: JobStore, clock: Clock) -> None:
    assert store.lead("reaper", "a", 10)
    assert not store.lead("reaper", "b", 10)
    assert store.lead("reaper", "a", 10)
    clock.now += 11
    assert store.lead("reaper", "b", 10)
    store.stop_leading("reaper", "b")
    assert store.lead("reaper", "a", 10)


def test_every_state_of_the_work_survives_reopening(url: str, clock: Clock, new: New) -> None:
    with JobStore.open(url, clock=clock, window_pages=4) as store:
        document = store.accept(new())
        open_document(store, pages=2)
    with JobStore.open(url, clock=clock, window_pages=4) as store:
        do_pages(store)
        store.assembled(take(store, JobKind.ASSEMBLE))
        assert [page.state for page in store.pages(document.id)] == [PageStatus.DONE] * 2
        do_nothing = store.claim(list(JobKind), "w", LEASE)
        assert do_nothing is None


def test_processes_that_start_at_once_agree_on_the_tables(url: str) -> None:
    program = f"from workers.store import JobStore; JobStore.open({url!r}).counts()"
    root = Path(__file__).parents[3]
    running = [subprocess.Popen([sys.executable, "-c", program], cwd=root, stderr=subprocess.PIPE) for _ in range(4)]
    ends = [process.communicate()[1].decode() for process in running]
    assert [process.returncode for process in running] == [0] * 4, "\n".join(itertools.chain(ends))


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from workers.store import database, models

    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA_REVISION
    opened = database.Database(url)
    opened.migrate()
    with opened.read() as tx:
        assert compare_metadata(MigrationContext.configure(tx.connection), models.metadata) == []
    opened.close()


def test_a_whole_document_costs_few_transactions(store: JobStore, new: New) -> None:
    """Not a measure of speed: a piece of work that is repeated shows as a second attempt."""
    document = store.accept(new())
    do_all(store, pages=3)
    with store._db.read() as tx:
        from sqlalchemy import text

        rows = tx.execute(text("SELECT number, outcome FROM attempts")).all()
    assert [tuple(row) for row in rows] == [(1, "done")] * 4
    assert store.document(document.id).state is DocumentState.DONE


def test_pages_of_the_route_vlm_wait_in_a_queue_of_their_own(store: JobStore, new: New) -> None:
    waits = store.accept(new(options=ParseOptions(route=Route.VLM)))
    open_document(store, pages=6)
    prose = store.accept(new())
    open_document(store, pages=1)
    assert store.claimable() == {JobKind.RECOGNISE: 3, JobKind.PAGE: 1}
    do_window(store, take(store, JobKind.PAGE))
    assert store.claim([JobKind.PAGE], "w1", 30) is None
    assert store.document(prose.id).state is DocumentState.ASSEMBLING
    # One that is lost stays in it, page by page.
    store.window_ended(take(store, JobKind.RECOGNISE), Problem("page_failed", "lost"))
    store.window_ended(take(store, JobKind.RECOGNISE), Problem("page_failed", "lost"))
    do_pages(store)
    store.assembled(take(store, JobKind.ASSEMBLE))
    store.assembled(take(store, JobKind.ASSEMBLE))
    assert store.document(waits.id).state is DocumentState.PARTIAL
    # Tried again, the page that failed is there too.
    store.retry(waits.id)
    assert store.claimable() == {JobKind.RECOGNISE: 1}
