"""The job store as everyone sees it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from pipeline.settings import settings
from workers.store.claims import WorkStore
from workers.store.database import Database
from workers.store.documents import DocumentStore
from workers.store.events import EventStore
from workers.store.fleet import FleetStore


class JobStore(DocumentStore, EventStore, WorkStore, FleetStore):
    """The truth about every document. Thread-safe; any number of processes may share one database.

    Every change is one transaction, conditional on the state that it leaves. Methods wait for a database that
    restarts (`patience` seconds) and then raise `sqlalchemy.exc.OperationalError`.
    """

    def __init__(self, database: Database, window_pages: int) -> None:
        self._db = database
        self.window_pages = window_pages
        self.tell: Callable[[], None] = _nobody
        """Called after work was made, so that workers are told of it at once (`workers.tokens`)."""

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        patience: float = 30.0,
        window_pages: int | None = None,
    ) -> JobStore:
        """Open the store at an SQLAlchemy URL and bring its tables to the newest revision.

        Args:
            url: `sqlite:////folder/store.db` or `postgresql://user@host/database`.
            clock: the store's time, for tests; None takes PostgreSQL's own, or this machine's for SQLite.
            patience: seconds to wait for a database that is restarting.
            window_pages: pages of a piece of work; None takes PAGEMILL_WINDOW_PAGES.
        """
        database = Database(url, clock, patience)
        try:
            database.migrate()
        except BaseException:
            database.close()
            raise
        return cls(database, window_pages or settings().window_pages)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> JobStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _nobody() -> None:
    return None
