"""Connections to the store's database: SQLite (WAL) or PostgreSQL, transactions, the store's clock, migrations."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from workers.store.models import SCHEMA_REVISION

P = ParamSpec("P")
T = TypeVar("T")

_BUSY_SECONDS = 30.0
_MIGRATION_LOCK = 7_246_134_155
"""Of PostgreSQL's advisory locks: any number that nobody else in the database uses."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction and the store's time in it, seconds since the epoch."""

    connection: Connection
    now: float

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        return self.connection.execute(statement, parameters)


class Database:
    """The engine and what the two kinds of database need done differently.

    Args:
        url: `sqlite:////path/to.db` or `postgresql+psycopg://...` (`postgresql://` will do).
        clock: overrides the store's clock: PostgreSQL's own, or this machine's for SQLite.
        patience: seconds for which `patient` operations wait for a database that went away.
    """

    def __init__(self, url: str, clock: Callable[[], float] | None = None, patience: float = 30.0) -> None:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.patience = patience
        self._clock = clock or (time.time if self.sqlite else None)
        # Threads of one process would otherwise poll for SQLite's lock with growing sleeps.
        self._writing: contextlib.AbstractContextManager[Any] = (
            threading.Lock() if self.sqlite else contextlib.nullcontext()
        )
        if self.sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        self.engine = _sqlite_engine(parsed) if self.sqlite else _server_engine(parsed)

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that only reads."""
        with self.engine.connect() as connection, connection.begin():
            yield Transaction(connection, self._now(connection))

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Transaction]:
        """A transaction that may write; on SQLite it holds the write lock from the start.

        Args:
            durable: when it returns, what was written survives a power cut too, not only a crash.
        """
        with self._writing, self.engine.connect() as connection:
            if self.sqlite:
                connection.execution_options(sqlite_begin="IMMEDIATE", sqlite_durable=durable)
            with connection.begin():
                yield Transaction(connection, self._now(connection))

    def _now(self, connection: Connection) -> float:
        if self._clock is not None:
            return self._clock()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def migrate(self) -> None:
        """Bring the tables to the newest revision. Any number of processes may do this at the same time."""
        if self._revision() == SCHEMA_REVISION:
            return
        with self.write(durable=True) as transaction:
            connection = transaction.connection
            if not self.sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
            from alembic import command
            from alembic.config import Config

            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _revision(self) -> str | None:
        try:
            with self.read() as transaction:
                return str(transaction.execute(text("SELECT version_num FROM alembic_version")).scalar_one())
        except OperationalError:
            if self.sqlite:
                return None  # no such table
            raise
        except SQLAlchemyError:
            return None

    def close(self) -> None:
        self.engine.dispose()


class HasDatabase:
    """What `patient` needs of the object whose method it wraps."""

    _db: Database


def patient(method: Callable[P, T]) -> Callable[P, T]:
    """Try the method of a `HasDatabase` again while the database restarts or is locked.

    A method may be run again after its commit was lost on the way back, so it must be conditional on the state
    that it leaves.
    """

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        owner = args[0]
        assert isinstance(owner, HasDatabase)
        deadline = time.monotonic() + owner._db.patience
        pause = 0.05
        while True:
            try:
                return method(*args, **kwargs)
            except DBAPIError as error:
                if not _passes(error) or time.monotonic() > deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2.0, pause * 2)

    return wrapper


def _passes(error: DBAPIError) -> bool:
    """Whether trying again may help: the connection was lost, the server restarts, a lock or a deadlock."""
    if isinstance(error, OperationalError) and "no such" not in str(error) and "disk is full" not in str(error):
        return True
    return error.connection_invalidated


def _sqlite_engine(url: Any) -> Engine:
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False}, pool_size=20)

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, record: object) -> None:
        connection.isolation_level = None  # transactions begin as _begin says, not as pysqlite guesses
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=NORMAL")
        # A change of the journal's mode does not wait for locks by itself.
        for _ in range(200):
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except Exception:  # noqa: BLE001 - "database is locked" while another process does the same
                time.sleep(0.05)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        raw: Any = connection.connection.dbapi_connection
        if options.get("sqlite_begin"):
            # Writes the log through to the disk at this commit, and with it all commits before.
            raw.execute(f"PRAGMA synchronous={'FULL' if options.get('sqlite_durable') else 'NORMAL'}")
        raw.execute(f"BEGIN {options.get('sqlite_begin', 'DEFERRED')}")

    return engine


def _server_engine(url: Any) -> Engine:
    return create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=20, connect_args={"connect_timeout": 5})
