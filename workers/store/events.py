"""What happened to documents, for those who follow them; and the webhook calls that are due because of it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, select, update

from workers.store.database import HasDatabase, patient
from workers.store.models import deliveries, documents, events
from workers.store.types import Delivery, Event, EventKind, NotFound


class EventStore(HasDatabase):
    """The part of the job store that followers of documents use."""

    @patient
    def events_after(self, document_id: str, last_id: int = 0, limit: int = 500) -> list[Event]:
        """Events of a document with an id above `last_id`, oldest first.

        An event is never committed after one of the same document with a greater id. Raises NotFound.
        """
        with self._db.read() as tx:
            rows = tx.execute(
                select(events)
                .where(events.c.document_id == document_id, events.c.id > last_id)
                .order_by(events.c.id)
                .limit(limit)
            ).all()
            if not rows and tx.execute(select(documents.c.id).where(documents.c.id == document_id)).first() is None:
                raise NotFound(f"There is no document {document_id}.")
        return [event_of(row) for row in rows]

    @patient
    def due_deliveries(self, limit: int = 20, hold_seconds: float = 60.0) -> list[Delivery]:
        """Take webhook calls that are due, for `hold_seconds`: then they are due again, unless their end is told."""
        with self._db.write() as tx:
            rows = tx.execute(
                select(deliveries, events.c.kind, events.c.at, events.c.data)
                .join(events, events.c.id == deliveries.c.event_id)
                .where(deliveries.c.state == "due", deliveries.c.due_at <= tx.now)
                .order_by(deliveries.c.due_at)
                .limit(limit)
                .with_for_update(skip_locked=True, of=deliveries)
            ).all()
            for row in rows:
                tx.execute(
                    update(deliveries)
                    .where(deliveries.c.id == row.id)
                    .values(attempts=row.attempts + 1, due_at=tx.now + hold_seconds)
                )
            return [
                Delivery(
                    id=row.id,
                    document_id=row.document_id,
                    event=Event(row.event_id, row.document_id, EventKind(row.kind), row.at, row.data),
                    url=row.url,
                    attempt=row.attempts + 1,
                )
                for row in rows
            ]

    @patient
    def delivered(self, delivery_id: int) -> None:
        """`due -> delivered`."""
        self._settle(delivery_id, state="delivered")

    @patient
    def delivery_failed(self, delivery_id: int, error: str, retry_in: float | None) -> None:
        """Due again in `retry_in` seconds; given up (`due -> failed`) where that is None."""
        if retry_in is None:
            self._settle(delivery_id, state="failed", error=error)
            return
        with self._db.write() as tx:
            tx.execute(
                update(deliveries)
                .where(deliveries.c.id == delivery_id, deliveries.c.state == "due")
                .values(error=error, due_at=tx.now + retry_in)
            )

    def _settle(self, delivery_id: int, **values: Any) -> None:
        with self._db.write() as tx:
            tx.execute(
                update(deliveries).where(deliveries.c.id == delivery_id, deliveries.c.state == "due").values(**values)
            )


def event_of(row: Row[Any]) -> Event:
    return Event(row.id, row.document_id, EventKind(row.kind), row.at, row.data)
