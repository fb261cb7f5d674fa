"""Run by Alembic inside the transaction that `Database.migrate` holds; by `alembic` itself with a URL for new ones."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from workers.store.models import metadata


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transaction_per_migration=False,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    with create_engine(context.config.get_main_option("sqlalchemy.url", "")).begin() as own:
        _run(own)
