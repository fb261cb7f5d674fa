"""The job store: the truth about every document, whatever the broker or a worker forgets.

`JobStore` is the whole interface; the dataclasses it answers with are in `types`. Transitions between states are
in `states` and nowhere else. Must not know: Celery, HTTP, where artifacts are.
"""

from workers.store.job_store import JobStore
from workers.store.types import (
    Batch,
    Claim,
    Delivery,
    Document,
    DocumentList,
    DocumentState,
    Event,
    EventKind,
    Fleet,
    IdempotencyConflict,
    JobKind,
    LeaseLost,
    NewDocument,
    NotFinished,
    NotFound,
    NotRetryable,
    PageState,
    PageStatus,
    Removed,
    StoreError,
    WorkerInfo,
)

__all__ = [
    "Batch",
    "Claim",
    "Delivery",
    "Document",
    "DocumentList",
    "DocumentState",
    "Event",
    "EventKind",
    "Fleet",
    "IdempotencyConflict",
    "JobKind",
    "JobStore",
    "LeaseLost",
    "NewDocument",
    "NotFinished",
    "NotFound",
    "NotRetryable",
    "PageState",
    "PageStatus",
    "Removed",
    "StoreError",
    "WorkerInfo",
]
