"""The Celery application: queues, tasks and how they are delivered.

A message says "there is work of this kind"; which work, the job store says when the task claims it. So a message
that comes twice, or never, does no harm, and Redis may lose all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from celery import Celery
from kombu import Exchange, Queue

from workers.settings import ServiceSettings
from workers.store.types import JobKind

QUEUES = tuple(str(kind) for kind in JobKind)

_VISIBILITY_SECONDS = 600
"""After which Redis gives a message that was not acknowledged to another worker."""


def celery_app(settings: ServiceSettings, queues: Iterable[str] = QUEUES) -> Celery:
    """An application that sends to, and consumes from, these queues.

    It is nobody's current application: a program may have several.
    """
    url = settings.redis_url or "memory://localhost//"
    app = Celery("pagemill", broker=url, set_as_current=False)
    names = {queue: settings.queue_prefix + queue for queue in QUEUES}
    embedded = url.startswith("memory:")
    options = {"polling_interval": min(0.05, settings.poll_seconds)} if embedded else _REDIS_OPTIONS
    app.conf.update(
        task_queues=[queue_of(settings, queue) for queue in queues],
        task_routes={task_name(queue): {"queue": names[queue]} for queue in QUEUES},
        task_default_queue=names[JobKind.PREPARE],
        task_create_missing_queues=False,
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_store_errors_even_if_ignored=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_prefetch_count_reduction=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=5,
        broker_pool_limit=4,
        broker_transport_options=options,
        task_serializer="json",
        accept_content=["json"],
    )
    return app


_REDIS_OPTIONS = {
    "visibility_timeout": _VISIBILITY_SECONDS,
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 15,
    "max_retries": 0,
}


def task_name(queue: str) -> str:
    return f"pagemill.{queue}"


def register(app: Celery, queue: str, work: Callable[[], None]) -> None:
    """Make `work` the task of a queue. The task's argument, the piece it was sent for, is a hint for people."""

    @app.task(name=task_name(queue), shared=False)  # of this application, not of all in the process
    def task(hint: str | None = None) -> None:
        work()


def queue_of(settings: ServiceSettings, queue: str) -> Queue:
    """The broker's queue for a kind of work."""
    name = settings.queue_prefix + queue
    return Queue(name, Exchange(name, type="direct"), routing_key=name)
