"""The tables. Times are seconds since the epoch; lists and maps are JSON text.

A job has pieces of one kind at a time (one to prepare it, then its windows of pages, then one to assemble it), so
that its `queued` and `leased` counts are of the kind that `stage` names.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

SCHEMA_REVISION = "0001"
"""The newest migration; a store that has it needs no Alembic to open."""

metadata = MetaData()
_Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only for INTEGER PRIMARY KEY


def _only(condition: str) -> dict[str, Any]:
    """For an index: of the rows for which this holds."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


jobs = Table(
    "jobs",
    metadata,
    Column("key", String(80), primary_key=True),
    Column("base_key", String(64), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("stage", String(16), nullable=False),
    Column("queued", Integer, nullable=False, default=0),
    Column("leased", Integer, nullable=False, default=0),
    Column("turn", Float, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("input_sha256", String(64), nullable=False),
    Column("input_name", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("description", JSON, nullable=False),
    Column("options", JSON, nullable=False),
    Column("password", Text),
    Column("source_kind", String(16)),
    Column("page_count", Integer),
    Column("pages_total", Integer),
    Column("pages_done", Integer, nullable=False, default=0),
    Column("pages_failed", Integer, nullable=False, default=0),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("expired", Boolean, nullable=False, default=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    UniqueConstraint("base_key", "generation", name="uq_jobs_generation"),
    # In the order in which a tenant's jobs are served; only those with something to claim.
    Index("ix_jobs_next", "stage", "tenant", "priority", "leased", "turn", "key", **_only("queued > 0")),
    Index("ix_jobs_under_way", "tenant", "leased", **_only("leased > 0")),
    Index("ix_jobs_input", "input_sha256"),
    Index("ix_jobs_finished", "finished_at"),
)

batches = Table(
    "batches",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

documents = Table(
    "documents",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("name", Text, nullable=False),
    Column("job_key", String(80), ForeignKey("jobs.key"), nullable=False),
    Column("input_sha256", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("options", JSON, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("batch_id", String(40), ForeignKey("batches.id")),
    Column("idempotency_key", String(255)),
    Column("webhook_url", Text),
    Column("state", String(16), nullable=False),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    UniqueConstraint("tenant", "idempotency_key", name="uq_documents_idempotency"),
    Index("ix_documents_job", "job_key"),
    Index("ix_documents_tenant", "tenant", "id"),
    Index("ix_documents_state", "state", "id"),
    Index("ix_documents_batch", "batch_id", "id"),
    Index("ix_documents_input", "input_sha256"),
)

pages = Table(
    "pages",
    metadata,
    Column("job_key", String(80), ForeignKey("jobs.key"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("route", String(16)),
    Column("why", Text, nullable=False, default=""),
    Column("seconds", Float, nullable=False, default=0.0),
    Column("warnings", JSON, nullable=False),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("finished_at", Float),
)

pieces = Table(
    "pieces",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("job_key", String(80), ForeignKey("jobs.key"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("pages", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("failures", Integer, nullable=False, default=0),
    Column("losses", Integer, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("not_before", Float, nullable=False, default=0.0),
    Column("lease_owner", String(128)),
    Column("lease_token", String(40)),
    Column("lease_seconds", Float),
    Column("lease_expires_at", Float),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("created_at", Float, nullable=False),
    Index("ix_pieces_job", "job_key", "state", "id"),
    Index("ix_pieces_lease", "state", "lease_expires_at"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("piece_id", _Id, ForeignKey("pieces.id"), nullable=False),
    Column("job_key", String(80), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("number", Integer, nullable=False),
    Column("worker", String(128), nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("outcome", String(16)),
    Column("error_code", String(64)),
    Index("ix_attempts_piece", "piece_id", "number"),
    Index("ix_attempts_job", "job_key"),
)

events = Table(
    "events",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("document_id", String(40), ForeignKey("documents.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", Float, nullable=False),
    Column("data", JSON, nullable=False),
    Index("ix_events_document", "document_id", "id"),
    sqlite_autoincrement=True,  # ids are never used twice, also after the newest were removed
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("document_id", String(40), ForeignKey("documents.id"), nullable=False),
    Column("event_id", _Id, ForeignKey("events.id"), nullable=False),
    Column("url", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("due_at", Float, nullable=False),
    Column("error", Text),
    Index("ix_deliveries_due", "state", "due_at"),
    Index("ix_deliveries_document", "document_id"),
)

tenants = Table(
    "tenants",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("turn", Float, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("place", String(128), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_started_at", Float, nullable=False),
    Column("queues", JSON, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("expires_at", Float, nullable=False),
)
