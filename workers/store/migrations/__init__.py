"""Alembic's revisions of the tables, run by `JobStore.open`."""
